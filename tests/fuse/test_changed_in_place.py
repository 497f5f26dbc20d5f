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
    for _ in range(2):
        with pytest.raises(AttributeError, match="config of Notes differs from model to model"):
            array.config["scale"] *= 0.9
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


def test_a_change_in_place_of_what_was_read_before_is_refused():
    array = dnnsuite.fuse(make_models(Notes, 3))
    config = array.config
    x = torch.randn(3, 5, 4)
    array(x)
    config["scale"] *= 0.9
    for _ in range(2):
        with pytest.raises(InvalidArgument, match="config of the array was changed in place"):
            array(x)


class Counted(torch.nn.Module):
    """It reads a number, so that its models run one by one, and counts in a dictionary of a part."""

    def __init__(self):
        super().__init__()
        self.layer, self.config = torch.nn.Linear(4, 4), {"calls": 0, "scale": 1.0}

    def forward(self, x):
        self.config["calls"] += 1 if x.sum().item() < 1e9 else 2
        return self.layer(x) * self.config["calls"] * self.config["scale"]


@pytest.mark.parametrize("runner", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_the_array_shows_what_all_models_have_left_alike(nested, runner):
    models = make_models(lambda: torch.nn.Sequential(Counted(), torch.nn.Tanh()) if nested else Counted(), 3)
    array = dnnsuite.fuse(models)
    x = torch.randn(3, 5, 4)
    parts = [one[0] if nested else one for one in models]

    def mine():
        return array.get_submodule("0") if nested else array

    def check(step):
        for _ in range(2):
            assert_near(step(x), torch.stack([one(own) for one, own in zip(models, x, strict=True)]))

    def edited(step):
        check(step)
        assert getattr(array, "0" if nested else "config") is not None
        assert mine().config == parts[0].config
        for part in (mine(), *parts):
            part.config = {**part.config, "scale": 0.5}
        check(step)
        for part in (mine(), *parts):
            part.config["calls"] *= 2
        check(step)

    if not runner:
        edited(array)
        return
    optimizer = dnnsuite.optim.SGD(array.parameters(), lr=0.0)
    outputs = []

    def loss(array, x):
        outputs.append(array(x))
        return outputs[-1].flatten(1).mean(1)

    with dnnsuite.StepRunner(array, optimizer, loss, threads=1, capture=False) as steps:
        edited(lambda x: (steps.step(x).losses(), outputs[-1])[1])
