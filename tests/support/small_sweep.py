# SPDX-License-Identifier: MIT
"""A small sweep by each algorithm, for tests of what is on disk and of processes that share it."""

import functools

import torch

import dnnsuite
from dnnsuite.tuning import ASHA, PBT, Hyperband, LogUniform, Random, Uniform

ALGORITHMS = {
    "random": lambda: Random(5),
    "hyperband": Hyperband,
    "asha": lambda: ASHA(6, parallel=3),
    "pbt": lambda: PBT(4),
}


def model(config):
    return torch.nn.Sequential(
        torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Dropout(config["dropout"]), torch.nn.Linear(6, 2)
    )


def run(out, name="hyperband", callbacks=(), **options):
    x = torch.randn(48, 4, generator=torch.Generator().manual_seed(5))
    y = (x[:, 0] * x[:, 1] > 0).long()
    space = {"lr": LogUniform(1e-3, 0.3), "dropout": Uniform(0.0, 0.5)}
    return dnnsuite.sweep(
        model, space, (x[:32], y[:32]), batch_size=8, out=out, quiet=True,
        **{"evaluate": (x[32:], y[32:]), "epochs": 3, "algorithm": ALGORITHMS[name](), "width": 3, **options},
        callbacks=callbacks,
    )  # fmt: skip


@functools.cache
def undisturbed(name="hyperband"):
    """The sweep by one process that nothing interrupts, made once for all tests."""
    return run(False, name)
