# SPDX-License-Identifier: MIT
import torch

from dnnsuite._step.capture.plan import make_plan
from dnnsuite._step.capture.record import StepRecorder


def plan(function, *inputs):
    with StepRecorder(inputs) as recorder:
        result = function(*inputs)
    recorder.recording.losses = recorder.slot(result).index
    return make_plan(recorder.recording)


def names(made):
    return [call.name for call in made.calls]


def test_views_of_what_stays_are_made_once():
    weight = torch.randn(4, 3)
    made = plan(lambda x: x @ weight.t(), torch.randn(2, 3))
    assert names(made) == ["aten.mm"]
    (static,) = made.static.values()
    assert static.data_ptr() == weight.data_ptr()
    assert static.shape == (3, 4)


def test_views_of_inputs_and_results_are_made_each_time():
    made = names(plan(lambda x: x.t().exp().t() + 1, torch.randn(2, 3)))
    assert len(made) == 4
    assert made[1::2] == ["aten.exp", "aten.add.Tensor"]


def test_constants_are_made_once_unless_somebody_writes_into_them():
    made = plan(lambda x: x + torch.ones_like(x) * 2, torch.randn(3))
    assert names(made) == ["aten.add.Tensor"]
    made = plan(lambda x: torch.zeros_like(x).add_(x), torch.randn(3))
    assert names(made) == ["aten.zeros_like", "aten.add_.Tensor"]


def test_what_follows_from_a_constant_that_is_written_is_made_each_time():
    def function(x):
        counts = torch.zeros(3)
        double = counts * 2
        counts.add_(x)
        return double + counts

    made = names(plan(function, torch.randn(3)))
    assert made == ["aten.zeros", "aten.mul.Tensor", "aten.add_.Tensor", "aten.add.Tensor"]


def test_a_value_computed_from_a_buffer_is_computed_each_time():
    buffer = torch.ones(3)
    assert names(plan(lambda x: x * buffer.sigmoid(), torch.randn(3))) == ["aten.sigmoid", "aten.mul.Tensor"]


def test_what_nobody_needs_is_left_out_but_not_what_writes():
    state = torch.zeros(3)

    def function(x):
        x.exp()
        state.add_(x)
        return x.sin()

    assert names(plan(function, torch.randn(3))) == ["aten.add_.Tensor", "aten.sin"]
