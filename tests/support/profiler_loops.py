# SPDX-License-Identifier: MIT
"""A small training loop and operators worked out by hand, for tests of profiles."""

import pandas as pd
import torch

from dnnsuite.profiler import define
from dnnsuite.timing import now_ns

OPS = {
    "name": "its name",
    "class": "its class",
    "thread": "its thread",
    "t0_ns": "begin",
    "t1_ns": "end",
    "self_ns": "its own time",
}


class Operators:
    """An instrument that records three operators per step: a product of 1 ms with a copy in it, and a norm."""

    name = "ops"

    def __init__(self):
        self.rows, self.calls = [], []

    def open(self):
        self.calls.append("open")

    def start(self):
        self.calls.append("start")

    def step(self, index):
        # Far from both ends of a step of 60 ms: this is called late when others have the CPU.
        at = now_ns() - 50_000_000
        self.rows += [
            ("aten::addmm", "gemm", 1, at, at + 1_000_000, 750_000),
            ("aten::copy_", "copy", 1, at, at + 250_000, 250_000),
            ("aten::layer_norm", "norm", 1, at + 1_000_000, at + 1_500_000, 500_000),
        ]

    def stop(self):
        self.calls.append("stop")

    def tables(self):
        return {"ops": define(pd.DataFrame(self.rows, columns=list(OPS)), OPS)}

    def notes(self):
        return ["2 records were dropped"]

    def close(self):
        self.calls.append("close")


def loop(profile, steps, length_ns=60_000_000, model=None):
    """`steps` steps, each at least `length_ns` long."""
    model = model or torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        begin = now_ns()
        optimizer.zero_grad()
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
        while now_ns() - begin < length_ns:
            pass
        profile.step()
