# SPDX-License-Identifier: MIT
"""Whoever asks a stand-in for its value is seen, and so is Python's module math."""

import math

import pytest
import torch

from dnnsuite._step.capture.arithmetic import Trace
from dnnsuite._step.capture.plan import StepRecording
from dnnsuite._step.capture.stand_ins import followed_in_math


@pytest.mark.parametrize("look", [float, str, repr, hash, lambda a: f"{a:.1f}", lambda a: {a: 1}, lambda a: a.hex()])
def test_who_looks_at_a_number_gets_another_step_for_another_one(look):
    trace = Trace(StepRecording(), [0.37])
    assert look(trace.numbers[0]) == look(0.37)
    assert trace.arithmetic.values([0.37]) is not None
    assert trace.arithmetic.values([5.25]) is None
    assert "test_stand_ins.py" in trace.place


def test_a_tensor_goes_first():
    trace = Trace(StepRecording(), [0.5])
    assert trace.numbers[0].__mul__(torch.ones(2)) is NotImplemented


def test_functions_of_math_are_put_back_by_the_last_to_leave():
    names, exp = {"power": math.pow}, math.exp
    with followed_in_math([names]):
        with followed_in_math([names]):
            assert math.exp is not exp
        assert math.exp is not exp
        (number,) = Trace(StepRecording(), [3.0]).numbers
        assert names["power"](number, 2).value == 9.0
    assert math.exp is exp
    assert names == {"power": math.pow}
