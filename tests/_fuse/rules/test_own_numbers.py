# SPDX-License-Identifier: MIT
"""A number that torch takes, in a layer or a function, may be another one in each model: the array trains as separate
models do in float64, and runs fused."""

import copy

import pytest
import torch
import torch.nn.functional as F

import dnnsuite
from dnnsuite import nn, optim

B, FEATURES = 3, 6
NUMBERS = [0.3, 0.55, 0.8]

LAYERS = {
    "LeakyReLU": lambda s: torch.nn.LeakyReLU(s),
    "ELU": lambda s: torch.nn.ELU(s),
    "CELU": lambda s: torch.nn.CELU(s),
    "PReLU": lambda s: torch.nn.PReLU(init=s),
    "Hardtanh": lambda s: torch.nn.Hardtanh(-s, s / 2),
    "Softplus": lambda s: torch.nn.Softplus(beta=s, threshold=s * 2),
    "Softshrink": lambda s: torch.nn.Softshrink(s),
    "Hardshrink": lambda s: torch.nn.Hardshrink(s),
    "Threshold": lambda s: torch.nn.Threshold(s, s / 2),
    "LayerNorm": lambda s: torch.nn.LayerNorm(FEATURES, eps=s),
    "BatchNorm1d": lambda s: torch.nn.BatchNorm1d(FEATURES, eps=s, momentum=s),
    "GroupNorm": lambda s: torch.nn.GroupNorm(2, FEATURES, eps=s),
    "inplace": lambda s: torch.nn.LeakyReLU(s, inplace=True),
}
CODES = [
    "F.leaky_relu(x, self.s)",
    "F.rrelu(x, self.s, 2 * self.s)",
    "F.elu(x, alpha=self.s)",
    "F.hardtanh(x, -self.s, self.s)",
    "F.softplus(x, self.s)",
    "F.threshold(x, self.s, 0.5 * self.s)",
    "x.clamp(-self.s, self.s)",
    "torch.clamp(x, max=self.s)",
    "F.scaled_dot_product_attention(x[None], x[None], x[None], scale=self.s)[0]",
    "F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0 * self.s, scale=self.s)[0]",
    "F.layer_norm(x, (6,), eps=self.s)",
    "F.normalize(x, p=1 + self.s, eps=self.s)",
    "x.abs() ** self.s + self.s ** x",
    "torch.add(x, x, alpha=self.s) / abs(self.s) ** 2",
    "torch.lerp(x, x.exp(), self.s)",
    "x.masked_fill(x > self.s, self.s)",
    "self.s - x * (self.s > x)",
    "torch.addcmul(x, x, x, value=self.s)",
    "torch.ones(6) * self.s + x",
    "self.s / torch.full((6,), 2.0) + x",
    "(x * 2).mul_(self.s)",
    "torch.logit(x.sigmoid(), eps=0.2 * self.s)",
    "F.gumbel_softmax(x, tau=self.s) * 0 + x",
]


class Around(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.a, self.inner, self.b = torch.nn.Linear(FEATURES, FEATURES), inner, torch.nn.Linear(FEATURES, FEATURES)

    def forward(self, x):
        return self.b(self.inner(self.a(x)))


def _coded(expression):
    names = {"torch": torch, "F": F}
    exec(
        "class Coded(torch.nn.Module):\n"
        "    def __init__(self, s):\n        super().__init__()\n        self.s = s\n"
        f"    def forward(self, x):\n        return {expression}\n",
        names,
    )
    return names["Coded"]


MAKERS = [*LAYERS.values(), *map(_coded, CODES)]


@pytest.fixture(autouse=True)
def _double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def _models(make):
    torch.manual_seed(0)
    return [Around(make(s)) for s in NUMBERS]


def _trained_alone(models, batches):
    for model in models:
        opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for x in batches:
            opt.zero_grad()
            model(x).square().mean().backward()
            opt.step()
    return [torch.cat([v.double().flatten() for v in m.state_dict().values()]) for m in models]


@pytest.mark.parametrize("make", MAKERS, ids=[*LAYERS, *CODES])
def test_an_array_trains_as_separate_models_and_fused(make):
    batches = torch.randn(3, 5, FEATURES)
    models = _models(make)
    array = dnnsuite.fuse(copy.deepcopy(models))
    opt = optim.SGD(array.parameters(), lr=0.1, momentum=0.9)
    for x in batches:
        opt.zero_grad()
        array(dnnsuite.stack(x, B=B)).square().mean((1, 2)).sum().backward()
        opt.step()
    assert all(cover.how != "per model" for cover in array.coverage()), str(array.coverage())
    alone = _trained_alone(models, batches)
    for got, want in zip(dnnsuite.unfuse(array), alone, strict=True):
        state = torch.cat([v.double().flatten() for v in got.state_dict().values()])
        torch.testing.assert_close(state, want)


@pytest.mark.parametrize("name", ["LeakyReLU", "Hardtanh", "BatchNorm1d", "PReLU"])
def test_recorded_steps_and_edits_follow_the_numbers(name):
    batches = torch.randn(6, 5, FEATURES)
    models = _models(LAYERS[name])
    array = dnnsuite.fuse(copy.deepcopy(models))
    opt = optim.SGD(array.parameters(), lr=0.1, momentum=0.9)
    with dnnsuite.StepRunner(array, opt, lambda array, x: array(x).square().mean((1, 2)), threads=1) as runner:
        for x in batches:
            runner.step(dnnsuite.stack(x, B=B))
    alone = _trained_alone(models, batches)
    array.drop([0])
    array.append(copy.deepcopy(models[0]))
    for got, want in zip(dnnsuite.unfuse(array), [*alone[1:], alone[0]], strict=True):
        state = torch.cat([v.double().flatten() for v in got.state_dict().values()])
        torch.testing.assert_close(state, want)
    x = torch.randn(5, FEATURES)
    expected = torch.stack([model.eval()(x) for model in (*models[1:], models[0])])
    torch.testing.assert_close(array.eval()(dnnsuite.stack(x, B=B)), expected)


def test_layers_of_an_array_take_a_number_per_model():
    x = torch.randn(B, 4, FEATURES)
    slopes = nn.PReLU(init=NUMBERS, B=B)
    assert slopes.weight.flatten().tolist() == pytest.approx(NUMBERS)
    random = nn.RReLU(NUMBERS, [s + 0.1 for s in NUMBERS], B=B)
    y = random(x)
    used = [(out[given < 0] / given[given < 0]) for out, given in zip(y, x, strict=True)]
    assert all(s <= u.min() and u.max() <= s + 0.1 for s, u in zip(NUMBERS, used, strict=True))
    random.eval()
    for i, s in enumerate(NUMBERS):
        torch.testing.assert_close(random(x)[i], F.leaky_relu(x[i], s + 0.05))
        torch.testing.assert_close(nn.functional.elu(x, NUMBERS)[i], F.elu(x[i], s))
        torch.testing.assert_close(nn.functional.softshrink(x, NUMBERS)[i], F.softshrink(x[i], s))
        attended = nn.functional.scaled_dot_product_attention(x, x, x, scale=NUMBERS)
        torch.testing.assert_close(attended[i], F.scaled_dot_product_attention(x[i], x[i], x[i], scale=s))
    with pytest.raises(dnnsuite.errors.InvalidArgument, match="negative_slope has 2 values for 3 models"):
        nn.functional.leaky_relu(x, [0.1, 0.2])


@pytest.mark.parametrize(
    "expression",
    [
        "torch.full((6,), self.s) * x",
        "torch.tensor([1.0, self.s])[1] * x",
        "x * float(self.s)",
        "x * max(self.s, x[0, 0])",
    ],
)
def test_what_cannot_have_a_number_of_each_runs_model_by_model(expression):
    models = _models(_coded(expression))
    x = torch.randn(5, FEATURES)
    expected = torch.stack([model(x) for model in models])
    torch.testing.assert_close(dnnsuite.fuse(models)(dnnsuite.stack(x, B=B)), expected)
