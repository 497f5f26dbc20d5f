"""Containers that the user changes in the array between steps, while code of each model changes its own."""

import pytest
import torch

import dnnsuite
from dnnsuite.errors import InvalidArgument
from helpers import assert_near, make_models


class Notes(torch.nn.Module):
    """It reads a number, so that its models run one by one, and notes it beside what the user sets."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.config, self.other = {"scale": 1.0, "notes": []}, {"scale": 1.0}

    def forward(self, x):
        self.config["notes"].append(x.sum().item())
        scale = self.config["scale"] * self.other["scale"] + 0.01 * sum(self.config["notes"])
        return self.layer(x) * scale


def test_a_change_in_place_does_not_replace_what_each_model_has():
    models = make_models(Notes, 3)
    array = dnnsuite.fuse(models)
    x = torch.randn(3, 5, 4)
    for part in (array, *models):
        part.config["scale"] *= 0.9  # nothing is each model's own yet
    for _ in range(2):
        assert_near(array(x), torch.stack([one(own) for one, own in zip(models, x, strict=True)]))
        for part in (array, *models):
            part.other["scale"] *= 0.9
    array.config["scale"] *= 0.9
    for _ in range(2):
        with pytest.raises(InvalidArgument, match="config of the array was changed in place"):
            array(x)
    for part in (array, *models):
        part.config = {"scale": 0.5, "notes": []}
    for _ in range(2):
        assert_near(array(x), torch.stack([one(own) for one, own in zip(models, x, strict=True)]))


def test_a_change_in_place_of_an_array_made_of_another():
    array = dnnsuite.fuse(make_models(Notes, 3))
    x = torch.randn(3, 5, 4)
    array(x)
    array.append(make_models(Notes, 1)[0])
    array(torch.cat([x, x[:1]]))
    with pytest.raises(AttributeError, match="config of Notes differs from model to model"):
        array.config["scale"] *= 0.9
