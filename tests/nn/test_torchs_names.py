# SPDX-License-Identifier: MIT
"""Layers show torch's arguments to `inspect.signature` and editors, and take them by torch's names."""

import inspect

import pytest
import torch

import dnnsuite
from dnnsuite import nn
from dnnsuite.nn import functional
from helpers import check_matches_models, make_models

LAYERS = [
    name
    for name in nn.__all__
    if isinstance(getattr(nn, name), type) and isinstance(getattr(torch.nn, name, None), type)
]
HIDDEN = {"NLLLoss2d", "GRU", "LSTM", "RNN", "Softmax2d"}  # by torch itself
FUNCTIONS = [
    name
    for name, torchs in vars(torch.nn.functional).items()
    if inspect.isfunction(torchs) and hasattr(functional, name) and not name.startswith("_")
]
OWN_TENSOR = {"_weight", "_freeze"}  # of an embedding, which an array takes by load_state_dict


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_shows_torchs_arguments(name):
    ours, torchs = getattr(nn, name), getattr(torch.nn, name)
    shown, wanted = (inspect.signature(kind).parameters for kind in (ours, torchs))
    assert name in HIDDEN or wanted.keys() - OWN_TENSOR <= shown.keys()
    assert shown["B"].default == 0
    shown, wanted = (inspect.signature(kind.forward).parameters for kind in (ours, torchs))
    assert list(shown)[: len(wanted)] == list(wanted)
    assert [p.default for p in shown.values()][: len(wanted)] == [p.default for p in wanted.values()]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_shows_torchs_arguments_and_defaults(name):
    torchs = getattr(torch.nn.functional, name)
    if any(p.kind is p.VAR_POSITIONAL for p in inspect.signature(torchs).parameters.values()):
        torchs = getattr(torch.nn.functional, f"{name}_with_indices")  # what torch's choice between two calls
    wanted = inspect.signature(torchs).parameters
    shown = inspect.signature(getattr(functional, name)).parameters
    assert list(shown)[: len(wanted)] == list(wanted)
    assert [p.default for p in shown.values()][: len(wanted)] == [p.default for p in wanted.values()]


def test_the_arguments_of_a_subclass_are_its_own():
    class Square(nn.Linear):
        def __init__(self, width, *, B):
            super().__init__(width, width, B=B)

    assert list(inspect.signature(Square).parameters) == ["width", "B"]
    assert Square(3, B=2)(input=torch.ones(2, 5, 3)).shape == (2, 5, 3)


@pytest.mark.parametrize(
    "make", [lambda: nn.Conv1d(4, 3, 2, B=2), lambda: nn.LayerNorm(6, B=2), lambda: nn.Dropout(0.0, B=2)]
)
def test_layers_take_torchs_names(make):
    layer, x = make(), torch.randn(2, 5, 4, 6)
    assert torch.equal(layer(input=x), layer(x))


def test_losses_take_torchs_names_in_any_order():
    loss, x, y = nn.CrossEntropyLoss(B=2), torch.randn(2, 5, 3), torch.randint(3, (2, 5))
    assert torch.equal(loss(target=y, input=x), loss(x, y))
    assert torch.equal(loss(x, target=y), loss(x, y))
    with pytest.raises(TypeError):
        loss(x, y, labels=y)


class ByName(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = (torch.nn.Conv1d(4, 4, 3), torch.nn.LayerNorm(4), torch.nn.Linear(4, 2))

    def forward(self, x):
        return self.head(input=torch.relu(self.norm(input=self.conv(input=x).mT)))


def test_a_model_that_calls_its_layers_by_name_is_fused():
    models = make_models(ByName, 3, torch.float64)
    array = check_matches_models(models, torch.randn(3, 2, 4, 7, dtype=torch.float64))
    assert {part.how for part in array.coverage()} == {"fused"}
    lines = dnnsuite.fuse(make_models(lambda: torch.nn.Linear(4, 2), 3))
    x = torch.randn(3, 5, 4)
    assert torch.equal(lines(input=x), lines(x))
