# SPDX-License-Identifier: MIT
import types

import pytest
import torch

from dnnsuite import StepRunner
from dnnsuite._step.capture import guards
from dnnsuite._step.outside import OutsideState
from dnnsuite.errors import InvalidArgument
from small_steps import make, squares

BATCH = torch.randn(2, 8, 6)


def outside_of(function):
    return OutsideState(guards.reach_of(function).readers)


def test_values_and_tensors_are_seen_and_functions_are_not():
    number, flag, held, tensor = 2.0, types.SimpleNamespace(on=True), [1], torch.ones(2)
    assert not outside_of(squares).any
    for function in (lambda x: x * number, lambda x: flag.on, lambda x: held[0]):
        assert outside_of(function).any_values
    seen = outside_of(lambda x: x * tensor)
    assert seen.any
    assert not seen.any_values


def test_a_tensor_written_under_a_step_is_refused_unless_the_step_writes_it():
    tensor = torch.ones(2)
    seen = outside_of(lambda x: x * tensor)
    tensor.mul_(2)
    seen.check(False)
    tensor.mul_(2)
    with pytest.raises(InvalidArgument, match=r"a tensor \[2\] that the steps read.*synchronize"):
        seen.check(True)
    seen.check(True)
    tensor.mul_(2)
    seen.note_own()
    tensor.mul_(2)
    seen.check(True)


@pytest.mark.parametrize("capture", [True, False])
def test_a_step_as_written_sees_the_values_of_its_call(capture):
    array, optimizer = make(2)
    config = {"k": 1.0, "seen": []}

    def loss(part, x):
        config["seen"].append(x[0, 0, 0].item())  # not captured
        return squares(part, x) * config["k"]

    with StepRunner(array, optimizer, loss, threads=2, width=1, capture=capture) as runner:
        for step in range(8):
            taken = runner.step(BATCH)
            assert taken.left == 0
            config["k"] = 2.0 + step


def test_a_tensor_that_replays_read_is_not_written_under_them():
    array, optimizer = make(2)
    weight = torch.ones(())
    with StepRunner(
        array, optimizer, lambda part, x: squares(part, x) * weight, threads=2, width=1
    ) as runner:
        while runner.mode != "captured":
            runner.step(BATCH).losses()
        runner.step(BATCH).losses()
        weight.fill_(2.0)  # after the step
        runner.step(BATCH)
        weight.fill_(3.0)
        with pytest.raises(InvalidArgument, match="written while steps"):
            runner.step(BATCH)
        runner.synchronize()
        weight.fill_(4.0)
        runner.step(BATCH).losses()
