# SPDX-License-Identifier: MIT
"""A parametrization that is taken off one model, or put on it, leaves the array and the other models as they are."""

import pytest
import torch
from torch.nn.utils import parametrizations, parametrize

import dnnsuite
from helpers import make_models


class Normed(torch.nn.Module):
    """Two parametrized layers; with `decides` code that reads a number, so that models run one by one."""

    def __init__(self, decides=False):
        super().__init__()
        self.first = parametrizations.weight_norm(torch.nn.Linear(4, 5))
        self.last = parametrizations.spectral_norm(torch.nn.Linear(5, 3))
        self.decides = decides

    def forward(self, x):
        h = self.last(torch.tanh(self.first(x)))
        return 2 * h if self.decides and h.detach().sum().item() > 0 else h


def remove_all(model):
    for layer in (model.first, model.last):
        parametrize.remove_parametrizations(layer, "weight")


def check_array(array, wanted, x):
    for index, out in enumerate(wanted):
        torch.testing.assert_close(array(x)[index], out)


@pytest.mark.parametrize("decides", [False, True])
@pytest.mark.parametrize("whose", ["models", "unfused"])
def test_removal_from_one_model_after_another(whose, decides):
    models = make_models(lambda: Normed(decides).eval(), 3)
    array = dnnsuite.fuse(models)
    x = torch.randn(3, 6, 4, dtype=next(array.parameters()).dtype)
    wanted = [model(part) for model, part in zip(models, x, strict=True)]
    changed = models if whose == "models" else dnnsuite.unfuse(array)
    for index, model in enumerate(changed):
        remove_all(model)
        assert type(model.first) is torch.nn.Linear
        torch.testing.assert_close(model(x[index]), wanted[index])
        check_array(array, wanted, x)
    others = dnnsuite.unfuse(array) if whose == "models" else models
    for index, model in enumerate(others):
        torch.testing.assert_close(model(x[index]), wanted[index])
    check_array(dnnsuite.fuse(changed), wanted, x)


def test_another_parametrization_of_a_single_model():
    array = dnnsuite.fuse(make_models(lambda: Normed().eval(), 2))
    x = torch.randn(2, 6, 4, dtype=next(array.parameters()).dtype)
    wanted = list(array(x))
    first, second = dnnsuite.unfuse(array)
    parametrize.register_parametrization(first.first, "bias", torch.nn.ReLU())
    assert (first.first.bias >= 0).all()
    torch.testing.assert_close(second(x[1]), wanted[1])
    check_array(array, wanted, x)
