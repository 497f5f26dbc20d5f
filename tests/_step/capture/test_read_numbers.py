# SPDX-License-Identifier: MIT
"""Stand-ins for numbers that are read of tensors."""

import operator

import pytest
import torch

from dnnsuite._step.capture.read_numbers import PlainRead, ReadNumber, StandIns
from dnnsuite._step.capture.record import StepRecorder

NUMBERS = [0.1, 0.5, 2.0, 2, -3.5]


@pytest.mark.parametrize("name", ["lt", "le", "gt", "ge", "eq", "ne"])
@pytest.mark.parametrize("value", [0.1, 0.5, 2.0])
def test_comparisons_are_those_of_the_number(name, value):
    compare, tensor = getattr(operator, name), torch.tensor(value)
    read = ReadNumber(tensor.double())
    for other in NUMBERS:
        assert compare(read, other) is compare(tensor.item(), other)
        assert compare(other, read) is compare(other, tensor.item())


@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv"])
def test_arithmetic_is_that_of_the_number(name):
    compute, tensor = getattr(operator, name), torch.tensor(0.1)
    read = ReadNumber(tensor.double())
    for other in NUMBERS:
        assert compute(read, other).tensor.item() == compute(tensor.item(), other)
        assert compute(other, read).tensor.item() == compute(other, tensor.item())
    assert compute(read, ReadNumber(torch.tensor(2.0).double())).tensor.item() == compute(tensor.item(), 2.0)
    assert abs(-read).tensor.item() == tensor.item()
    assert bool(read)
    assert isinstance(read, float)


@pytest.mark.parametrize("use", [float, int, str, repr, round, "{}".format])
def test_any_other_use_ends_the_recording(use):
    with pytest.raises(PlainRead):
        use(ReadNumber(torch.tensor(0.5).double()))


def test_items_with_a_fraction_are_stood_in_for():
    x, whole = torch.tensor([0.5]), torch.tensor([2])
    with StepRecorder([x, whole]) as recorder, StandIns(recorder):
        read, number = x.item(), whole.item()
        small = read < 1
    assert (type(read), number, small) == (ReadNumber, 2, True)
    assert recorder.recording.refusal is None
    assert len(recorder.recording.looks) == 2
