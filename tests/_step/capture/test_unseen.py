# SPDX-License-Identifier: MIT
"""What a step reads that no guard can compare is a reason, with file and line, if the code that reads it runs."""

import datetime
import logging
import os
import random
import time

import numpy as np
import pytest
import torch

import dnnsuite
from dnnsuite import optim

LOG = logging.getLogger("dnnsuite.tests")
LATE = iter([1.0] * 100)


def by_clock():
    return 1.0 if time.monotonic() > 0 else 2.0


def by_date():
    return 1.0 if datetime.datetime.now().year > 0 else 2.0


def by_file():
    with open(__file__) as text:
        return float(len(text.read()) > 0)


def by_folder():
    return float(bool(os.listdir(".")))


def by_iterator():
    return next(LATE)


def by_chance():
    return 1.0 if random.random() < 2 else 2.0


def by_numpy():
    return 1.0 if np.random.rand() < 2 else 2.0


def mode_of(scale, **options):
    array = dnnsuite.fuse([torch.nn.Linear(4, 2) for _ in range(2)])
    x = torch.randn(2, 3, 4)
    with dnnsuite.StepRunner(
        array,
        optim.SGD(array.parameters(), lr=0.1),
        lambda array, x: (array(x) * scale()).square().flatten(1).mean(1),
        **options,
    ) as runner:
        for _ in range(8):
            runner.step(x).losses()
        return runner.mode


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("scale", [by_clock, by_date, by_file, by_folder, by_iterator, by_chance, by_numpy])
def test_it_is_a_reason_with_its_place(scale, threads):
    mode = mode_of(scale, threads=threads, width=1)
    line = scale.__code__.co_firstlineno + 1
    assert mode.startswith("eager: ")
    assert mode.endswith(f" at test_unseen.py:{line} in {scale.__name__}")


class Trainer:
    """Its loss reads a number; other methods read the clock, and hold what nobody can compare."""

    def __init__(self):
        self.scale, self.loader, self.begin = 2.0, iter(range(100)), time.time()

    def factor(self):
        LOG.info("a message has a time")
        return self.scale

    def report(self):
        return next(self.loader), time.time() - self.begin


def test_code_that_does_not_run_is_none():
    trainer = Trainer()
    assert mode_of(lambda: trainer.factor(), threads=1) == "captured"
    assert mode_of(lambda: trainer.factor() + trainer.report()[0], threads=1).startswith("eager: ")


def test_draws_of_the_caller_are_none():
    array = dnnsuite.fuse([torch.nn.Linear(4, 2) for _ in range(2)])
    with dnnsuite.StepRunner(
        array, optim.SGD(array.parameters(), lr=0.1), lambda a, x: a(x).square().flatten(1).mean(1), threads=2, width=1
    ) as runner:
        for _ in range(12):
            runner.step(torch.randn(2, 3, 4))
            random.random()
        assert runner.mode == "captured"
