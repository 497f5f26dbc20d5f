# SPDX-License-Identifier: MIT
"""Weights that a forward puts in the place of a layer's, for one call: they count, and get the gradient."""

import pytest
import torch
from torch.func import functional_call
from torch.nn.utils import parametrize

import dnnsuite
from helpers import assert_near, check_matches_models, make_models

nn = torch.nn
LAYERS = {
    "linear": (lambda: nn.Linear(4, 4), (5, 4)),
    "conv": (lambda: nn.Conv2d(4, 4, 3, padding=1), (2, 4, 5, 5)),
    "batch norm": (lambda: nn.BatchNorm2d(4), (2, 4, 5, 5)),
    "layer norm": (lambda: nn.LayerNorm(4), (5, 4)),
    "prelu": (lambda: nn.PReLU(4), (5, 4)),
    "gru": (lambda: nn.GRU(4, 4), (3, 2, 4)),
    "attention": (lambda: nn.MultiheadAttention(4, 2), (3, 2, 4)),
    "encoder": (lambda: nn.TransformerEncoderLayer(4, 2, 8, 0.0), (3, 2, 4)),
    "part": (lambda: nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.ReLU()), (2, 4, 5, 5)),
}
WEIGHTS = {
    "each model's": lambda self, x: {n: p * self.scale for n, p in self.layer.named_parameters()},
    "of the data": lambda self, x: {n: p * x.mean() for n, p in self.layer.named_parameters()},
    "all models'": lambda self, x: {
        n: torch.full(p.shape, 0.3, dtype=p.dtype) for n, p in self.layer.named_parameters()
    },
    "one": lambda self, x: {n: p * self.scale for n, p in list(self.layer.named_parameters())[:1]},
}


class Replacing(nn.Module):
    def __init__(self, make, weights):
        super().__init__()
        self.layer, self.weights = make(), weights
        self.scale = nn.Parameter(torch.randn(()))
        self.times = 3 if isinstance(self.layer, nn.MultiheadAttention) else 1

    def forward(self, x):
        own = (x,) * (3 if isinstance(self.layer, nn.MultiheadAttention) else 1)
        first = functional_call(self.layer, self.weights(self, x), own)
        second = self.layer(*own)
        return (first[0] if isinstance(first, tuple) else first) + (second[0] if isinstance(second, tuple) else second)


@pytest.mark.parametrize(
    ("layer", "weights"),
    [(layer, "each model's") for layer in LAYERS]
    + [(layer, weights) for layer in ("linear", "part") for weights in list(WEIGHTS)[1:]],
)
def test_functional_call_in_a_forward(layer, weights):
    make, shape = LAYERS[layer]
    models = make_models(lambda: Replacing(make, WEIGHTS[weights]), 4, torch.float64)
    array = dnnsuite.fuse(models)
    x = torch.randn(4, *shape, dtype=torch.float64)
    output = array(x)
    output.square().sum().backward()
    assert {cover.how for cover in array.coverage()} <= {"fused", "elementwise"}
    for index, model in enumerate(models):
        expected = model(x[index])
        expected.square().sum().backward()
        assert_near(output[index], expected)
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                assert_near(array.get_parameter(name).grad[index], parameter.grad, name)
        for name, value in model.named_buffers():
            torch.testing.assert_close(array.get_buffer(name)[index], value)
    assert all(type(parameter) is nn.Parameter for parameter in array.parameters())


class Doubled(nn.Module):
    def forward(self, weight):
        return 2 * weight.triu() + weight.mean()


def parametrized():
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    parametrize.register_parametrization(model[0], "weight", Doubled())
    return model


class Cached(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = parametrized()

    def forward(self, x):
        with parametrize.cached():
            return self.inner(self.inner(x))


class Changing(nn.Module):
    """Changes a layer after a call whose output nobody has looked at."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4, track_running_stats=False)
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        a = self.norm(x)
        self.norm.eps = 1.0
        b = self.norm(x)
        self.norm.eps = 1e-5
        c = self.fc(x)
        self.fc.train(False)
        return a + b + c


class Asking(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.LayerNorm(4)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x) * 2 if isinstance(layer, nn.Linear) else layer(x) + 1
        return x


@pytest.mark.parametrize("make", [parametrized, Cached, Changing, Asking])
def test_what_a_forward_does_with_its_layers(make):
    check_matches_models(make_models(make, 3), torch.randn(3, 5, 4))
