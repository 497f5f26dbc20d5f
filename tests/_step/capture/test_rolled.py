# SPDX-License-Identifier: MIT
"""Loops over the models, rolled up so that steps of more or fewer models have the same list of operators."""

import pytest
import torch

import dnnsuite
from dnnsuite import optim
from dnnsuite._step.capture.placed import Rolled
from dnnsuite._step.capture.record import StepRecorder


def rolled(function, *tensors):
    """The names of the operators of `function` that are left, and the object."""
    recorder = StepRecorder(tensors)
    with recorder:
        function(*tensors)
    made = Rolled(recorder.recording.calls)
    return [call.name for call in made.calls], made


def products(x, w):
    results = [torch.mm(a, b).relu() for a, b in zip(x.unbind(0), w.unbind(0), strict=True)]
    return torch.stack(results).sum()


def test_a_loop_is_the_operators_of_one_model():
    names = [rolled(products, torch.randn(B, 3, 4), torch.randn(B, 4, 2))[0] for B in (2, 3, 5)]
    assert names[0] == names[1] == names[2]
    assert names[0].count("aten.mm") == 1


def test_what_is_written_into_each_models_place_is_a_loop():
    def written(x):
        result = torch.empty_like(x)
        for to, own in zip(result.unbind(0), x.unbind(0), strict=True):
            to.copy_(own * 2)
        return result.sum()

    assert rolled(written, torch.randn(4, 3))[0] == rolled(written, torch.randn(2, 3))[0]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: [part.sin() if number else part.cos() for number, part in enumerate(x.unbind(0))],
        lambda x: [a + b for a, b in zip(x.unbind(0), x.unbind(0)[::-1], strict=True)],
        lambda x: x.unbind(0)[0].sin(),
        lambda x: [part.add(x.sum()) for part in x.unbind(0)],
    ],
    ids=["another operator", "models mixed", "one of them", "another tensor"],
)
def test_what_differs_from_model_to_model_stays_as_it_is(function):
    x = torch.randn(4, 3)
    recorder = StepRecorder([x])
    with recorder:
        function(x)
    assert Rolled(recorder.recording.calls).calls == recorder.recording.calls


def test_lists_in_another_order_are_not_those_of_each_model():
    def reversed_stack(x):
        return torch.stack([part.sin() for part in x.unbind(0)][::-1])

    names, made = rolled(reversed_stack, torch.randn(3, 2))
    assert names.count("aten.sin") == 3
    assert made.each([1, 2, 3]) is None


class Rows(torch.nn.Module):
    """A recurrence, whose gradient is a loop over the models."""

    def __init__(self):
        super().__init__()
        self.rows, self.out = torch.nn.GRU(4, 6, batch_first=True), torch.nn.Linear(6, 3)

    def forward(self, x):
        return self.out(self.rows(x)[0][:, -1])


def losses(array, x, y):
    return dnnsuite.nn.functional.cross_entropy(array(x), y)


def test_after_a_drop_one_step_is_recorded_and_the_next_is_replayed():
    torch.manual_seed(0)
    models = [Rows().double() for _ in range(4)]
    array = dnnsuite.fuse(models)
    optimizer = optim.SGD(array.parameters(), lr=0.1)
    own = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    with dnnsuite.StepRunner(array, optimizer, losses, threads=1, width=4) as runner:
        for number in range(9):
            if number == 6:
                assert runner.mode == "captured"
                array.drop(1, optimizer)
                del models[1], own[1]
            x, y = torch.randn(5, 7, 4, dtype=torch.float64), torch.randint(3, (5,))
            runner.step(dnnsuite.stack(x, len(models)), dnnsuite.stack(y, len(models))).losses()
            for model, mine in zip(models, own, strict=True):
                mine.zero_grad()
                torch.nn.functional.cross_entropy(model(x), y).backward()
                mine.step()
            if number == 7:
                assert runner.mode == "captured"
    for mine, model in zip(array, models, strict=True):
        torch.testing.assert_close(mine.state_dict(), model.state_dict())


def test_a_list_of_which_the_first_model_is_not_used_stays():
    names, _ = rolled(lambda x: x.unbind(0)[1].exp().sum(), torch.randn(2, 3))
    assert names == ["aten.unbind.int", "aten.exp", "aten.sum"]
