# SPDX-License-Identifier: MIT
"""Failures by the dozen, and memory that really runs out: each ends its own trial, and the rest is as without it."""

import math
import random

import pytest
import torch

import dnnsuite
import forked_program
from dnnsuite.errors import Error, InvalidArgument

FATES = ("nan", "raise", "no memory", "factory", "evaluation")


class Fated(torch.nn.Module):
    """A model that fails as its configuration says, or does not."""

    def __init__(self, fate):
        super().__init__()
        self.layer, self.fate = torch.nn.Linear(4, 2), fate
        if fate == "factory":
            raise RuntimeError("no such layer")

    def forward(self, x):
        if self.fate == "raise" and self.training:
            raise ValueError("a bad forward")
        if self.fate == "no memory" and self.training:
            raise MemoryError("out of memory")
        return self.layer(x) * (math.nan if self.fate == "nan" else 1.0)


def test_two_hundred_trials_of_which_some_fail(task, tmp_path):
    draw = random.Random(4)
    fates = ["well" if draw.random() < 0.95 else draw.choice(FATES) for _ in range(200)]
    assert set(fates) == {"well", *FATES}
    configs = [{"fate": fate, "lr": 10 ** draw.uniform(-2, -1)} for fate in fates]

    def evaluate(model):
        if model.fate == "evaluation":
            raise LookupError("no such metric")
        return torch.nn.functional.cross_entropy(model(task.valid[0]), task.valid[1])

    sweep = dnnsuite.sweep(
        lambda config: Fated(config["fate"]),
        configs,
        task.loader(28),
        evaluate=evaluate,
        goal="min",
        out=tmp_path / "out",
        quiet=True,
    )
    well = [fate == "well" for fate in fates]
    assert (sweep.table["status"] == "done").tolist() == well
    assert all(message for message, good in zip(sweep.table["message"], well, strict=True) if not good)
    seeds = [
        {**config, "seed": number} for number, (config, good) in enumerate(zip(configs, well, strict=True)) if good
    ]
    alone = dnnsuite.sweep(
        lambda config: Fated(config["fate"]),
        seeds[:16],
        task.loader(28),
        evaluate=evaluate,
        goal="min",
        out=False,
        quiet=True,
    )
    done = sweep.history[sweep.history["trial"].map(lambda number: well[number])]
    assert done["value"][:16].tolist() == alone.history["value"].tolist()


SCRIPT = """
import resource, torch, dnnsuite, logging
torch.set_num_threads(1)
x, y = torch.randn(64, 16), torch.randint(0, 2, (64,))
def model(config):
    return torch.nn.Sequential(torch.nn.Linear(16, 1024), torch.nn.Linear(1024, 1024), torch.nn.Linear(1024, 2))
def sweep(trials, width):
    configs = [{"lr": 10.0 ** -(2 + i / 8)} for i in range(trials)]
    options = {"batch_size": 32, "evaluate": (x, y), "epochs": 1, "width": width, "out": False, "quiet": True}
    return dnnsuite.sweep(model, configs, (x, y), **options)
free = sweep(2, 1)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 200 * 2**20,) * 2)
limited = sweep(16, 16)
print(sorted(set(limited.table["status"])), limited.history["loss"][:2].tolist() == free.history["loss"].tolist())
"""


def test_memory_that_really_runs_out():
    done = forked_program.run(SCRIPT)
    assert done.returncode == 0, done.stderr
    assert "memory ran out with 16 models at once; the sweep continues with 8" in done.stderr
    first = done.stdout.split("\n")[0]
    assert "'done'" in first
    assert first.endswith("True")  # those that were done are as without a limit


def test_a_metric_that_is_never_a_number(task):
    with pytest.raises(Error, match=r"all 2 trials failed.*value is nan after epoch 1"):
        dnnsuite.sweep(
            lambda config: Fated("well"), {"lr": [0.1, 0.2]}, task.loader(), evaluate=lambda model: math.nan,
            goal="min", out=False, quiet=True,
        )  # fmt: skip


def test_a_factory_that_ignores_its_configuration(task):
    with pytest.raises(InvalidArgument, match=r"'fate' varies between trials, but nothing uses it"):
        dnnsuite.sweep(lambda config: Fated("well"), {"fate": ["well", "nan"]}, task.loader(), out=False, quiet=True)
