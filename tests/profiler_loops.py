# SPDX-License-Identifier: MIT
"""A small training loop and operators worked out by hand, for tests of profiles."""

import pandas as pd
import torch

from dnnsuite.profiler import define
from dnnsuite.timing import now_ns

OPS = {"name": "its name", "thread": "its thread", "t0_ns": "begin", "t1_ns": "end"}


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
        import threading

        thread, at = threading.get_native_id(), now_ns() - 3_000_000
        self.rows += [("aten::addmm", thread, at, at + 1_000_000), ("aten::copy_", thread, at, at + 250_000),
                      ("aten::layer_norm", thread, at + 1_000_000, at + 1_500_000)]  # fmt: skip

    def stop(self):
        self.calls.append("stop")

    def tables(self):
        return {"ops": define(pd.DataFrame(self.rows, columns=list(OPS)), OPS)}

    def notes(self):
        return ["2 records were dropped"]

    def close(self):
        self.calls.append("close")


def loop(profile, steps, length_ns=4_000_000, model=None):
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
