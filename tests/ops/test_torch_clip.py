# SPDX-License-Identifier: MIT
"""torch's clipping functions on the gradients of an array: those of separate models."""

import copy
import gc
from itertools import chain

import pytest
import torch
from torch.nn.utils import clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm

from dnnsuite import fuse, nn
from dnnsuite.errors import InvalidArgument
from dnnsuite.ops.torch_on_arrays import register, take_over
from helpers import assert_near, make_models

B = 3


class Model(torch.nn.Module):
    """A layer and a parameter of the model's own."""

    def __init__(self):
        super().__init__()
        self.layer, self.scale = torch.nn.Linear(4, 3), torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.layer(x) * self.scale


def trained():
    """An array and its models after a backward pass."""
    models = make_models(Model, B, torch.float64)
    array = fuse(models)
    x = torch.randn(B, 5, 4, dtype=torch.float64)
    array(x).square().sum((-1, -2)).mul(torch.tensor([1.0, 30.0, 0.01], dtype=torch.float64)).sum().backward()
    for index, model in enumerate(models):
        (model(x[index]).square().sum() * [1.0, 30.0, 0.01][index]).backward()
    return array, models


def given_as(form, array):
    parameters = list(array.parameters())
    return {"a generator": array.parameters(), "a list": parameters, "a part": parameters[:1]}[form]


@pytest.mark.parametrize("form", ["a generator", "a list", "a part"])
@pytest.mark.parametrize("norm_type", [2.0, float("inf")])
def test_clips_each_model_by_itself(form, norm_type):
    array, models = trained()
    norms = clip_grad_norm_(given_as(form, array), 1.5, norm_type)
    expected = [clip_grad_norm_(given_as(form, model), 1.5, norm_type) for model in models]
    assert_near(norms, torch.stack(expected))
    for index, model in enumerate(models):
        for mine, theirs in zip(array.parameters(), model.parameters(), strict=True):
            assert_near(mine.grad[index], theirs.grad)


def test_the_two_halves_of_it_and_values():
    array, models = trained()
    norms = get_total_norm([p.grad.detach() for p in array.parameters()])
    expected = [get_total_norm([p.grad for p in model.parameters()]) for model in models]
    assert_near(norms, torch.stack(expected))
    assert_near(get_total_norm(array.parameters()), torch.stack([get_total_norm(m.parameters()) for m in models]))
    clip_grads_with_norm_(array.parameters(), 0.5, norms)
    clip_grad_value_(array.parameters(), 0.01)
    for index, model in enumerate(models):
        clip_grads_with_norm_(model.parameters(), 0.5, expected[index])
        clip_grad_value_(model.parameters(), 0.01)
        for mine, theirs in zip(array.parameters(), model.parameters(), strict=True):
            assert_near(mine.grad[index], theirs.grad)


def test_copies_and_layers_written_with_B_are_arrays_too():
    by_hand = torch.nn.Module()
    by_hand.weight = torch.nn.Parameter(torch.ones(B, 2))
    register(by_hand)
    for array in (copy.deepcopy(trained()[0]), nn.Linear(4, 2, B=B), by_hand):
        for p in array.parameters():
            p.grad = torch.ones_like(p)
        sizes = sum(p[0].numel() for p in array.parameters())
        assert_near(clip_grad_norm_(array.parameters(), 1.0), torch.full((B,), sizes**0.5, dtype=p.dtype))


def test_others_are_torchs_as_before_and_are_not_mixed_with_arrays():
    take_over()  # once more changes nothing
    array, models = trained()
    grads = [p.grad for p in models[0].parameters()]
    assert get_total_norm(grads).shape == ()
    assert get_total_norm([]) == 0
    with pytest.raises(InvalidArgument, match="3 of these tensors are those of an array of models and 3 are not"):
        clip_grad_norm_(chain(array.parameters(), models[0].parameters()), 1.0)
    array.scale.grad[1] = float("nan")
    with pytest.raises(InvalidArgument, match=r"models \[1\] have a norm that is not finite"):
        clip_grad_norm_(array.parameters(), 1.0, error_if_nonfinite=True)
    del array
    gc.collect()
    assert get_total_norm(grads).shape == ()
