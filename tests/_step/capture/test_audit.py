# SPDX-License-Identifier: MIT
"""What an audit compares, beside tensors: Python values, and errors of the eager step."""

import gc

import pytest
import torch

import dnnsuite
from dnnsuite import StepRunner, optim
from dnnsuite.errors import StaleRecording

BEFORE = gc.get_threshold()


@pytest.fixture(autouse=True)
def threshold():
    yield
    gc.set_threshold(*BEFORE)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.calls, self.seen = torch.nn.Linear(3, 2), 0, None

    def forward(self, x):
        changed = gc.get_threshold()[0] != BEFORE[0]  # a setting in C, which no guard sees
        self.calls += 2 if changed else 1
        return self.inner(x)


def plain(array, x):
    return array(x).square().flatten(1).mean(1)


def failing(array, x):
    if gc.get_threshold()[0] != BEFORE[0]:
        raise ValueError("no more")
    return plain(array, x)


def audited(losses):
    torch.manual_seed(0)
    array = dnnsuite.fuse([Net() for _ in range(2)])
    runner = StepRunner(array, optim.Adam(array.parameters()), losses, threads=1, width=2, audit=1)
    x = torch.randn(2, 4, 3)
    for _ in range(10):
        runner.step(x)
    assert runner.mode == "captured"
    assert runner.audits_passed > 0
    return array, runner, x


@pytest.mark.parametrize(
    ("losses", "message"),
    [(plain, r"the Python value calls is 11 after the replay and 12"), (failing, "ValueError: no more")],
)
def test_python_values_and_errors_are_compared(losses, message):
    array, runner, x = audited(losses)
    weight, calls = array.inner.weight.detach().clone(), array.calls
    gc.set_threshold(BEFORE[0] + 1, *BEFORE[1:])
    with runner:
        with pytest.raises(StaleRecording, match=message):
            runner.step(x)
        assert torch.equal(array.inner.weight, weight)
        assert array.calls == calls == 10
