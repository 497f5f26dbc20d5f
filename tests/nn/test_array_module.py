# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import fuse
from dnnsuite.errors import InvalidArgument
from dnnsuite.nn.array_module import per_model


def test_models_of_different_shape_are_refused_by_name():
    with pytest.raises(InvalidArgument, match=r"models 0 and 1 differ: Linear.out_features is 4 and 5"):
        fuse([torch.nn.Linear(6, 4), torch.nn.Linear(6, 5)])


def test_frozen_parameters_stay_frozen():
    models = [torch.nn.Linear(6, 4) for _ in range(2)]
    for model in models:
        model.bias.requires_grad_(False)
    assert not fuse(models).bias.requires_grad


def test_training_mode_is_the_models():
    assert not fuse([torch.nn.Linear(6, 4).eval()]).training


def test_one_value_or_one_per_model():
    assert per_model(0.5, 2, "p") == [0.5, 0.5]
    assert per_model(torch.tensor([0.5, 0.25]), 2, "p") == [0.5, 0.25]
    with pytest.raises(InvalidArgument, match="p has 1 values for 2 models"):
        per_model([0.5], 2, "p")
