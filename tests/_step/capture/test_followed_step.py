# SPDX-License-Identifier: MIT
"""Numbers that stand for those of a closure are found among the arguments of operators."""

import pytest
import torch

from dnnsuite._step.capture.changing_numbers import ChangingNumbers
from dnnsuite._step.capture.followed_step import NotFollowed, follow
from dnnsuite._step.capture.guards import reach_of


def followed(step, box):
    reach = reach_of(step)
    before = [read() for read in reach.readers]
    numbers = ChangingNumbers(reach, torch.nn.Module())
    box[0] = 0.25
    now = [read() for read in reach.readers]
    numbers.see(before, now)
    assert len(numbers.places) == 1
    try:
        return follow(step, [], 0, numbers, now, set())
    finally:
        assert box == [0.25]


def test_arguments_are_inputs():
    box, x = [0.5], torch.ones(3)
    step = followed(lambda: (x * (box[0] + 1)).sum() - box[0], box)
    assert step.inputs(step.values([0.25])) == [1.25, 0.25]
    assert step.inputs(step.values([3.0])) == [4.0, 3.0]
    assert step.values([1.0]) is None
    names = [call.name for call in step.as_written(step.values([3.0])).calls]
    assert names == ["aten.mul.Tensor", "aten.sum", "aten.sub.Tensor"]


def test_a_step_that_changes_what_nobody_puts_back_is_refused():
    box, x = [0.5], torch.ones(3)
    with pytest.raises(NotFollowed):
        followed(lambda: x.mul_(box[0]).sum(), box)
    assert x.tolist() == [1, 1, 1]
