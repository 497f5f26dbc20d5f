# SPDX-License-Identifier: MIT
"""Heads on one frozen base train as separate models do: in a loop, under StepRunner, on shared batches and own ones."""

import copy

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import dnnsuite
from dnnsuite import nn, optim
from dnnsuite.nn.sharing import is_shared
from helpers import assert_near

B, STEPS = 3, 10
LRS = [0.1, 0.05, 0.02]


def images():
    return torch.nn.Sequential(
        torch.nn.Conv2d(2, 4, 3, padding=1),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(inplace=True),
        torch.nn.MaxPool2d(2),
        torch.nn.Dropout(0.0),
        torch.nn.Conv2d(4, 8, 3, padding=1, bias=False),
        torch.nn.GroupNorm(2, 8),
        torch.nn.Flatten(),
    )


class Words(torch.nn.Module):
    """A language model with tied tables; the last layer may be checkpointed."""

    def __init__(self, checkpointed=False):
        super().__init__()
        self.words = torch.nn.Embedding(11, 8)
        self.place = torch.nn.Parameter(torch.randn(5, 8))
        self.layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.norm = torch.nn.LayerNorm(8)
        self.checkpointed = checkpointed
        self.register_buffer("ids", torch.arange(5))

    def forward(self, x):
        h = self.words(x) + self.place[self.ids[: x.size(1)]]
        h = checkpoint(self.layer, h, use_reentrant=False) if self.checkpointed else self.layer(h)
        h = self.norm(h)
        return (h @ self.words.weight.t())[:, -1] + h.mean(1).sum(-1, keepdim=True)


class Headed(torch.nn.Module):
    def __init__(self, base, width):
        super().__init__()
        self.base, self.head = base, torch.nn.Linear(width, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.base(x)))


CASES = {
    "images": (images, 32, lambda *n: torch.randn(*n, 2, 4, 4, dtype=torch.float64)),
    "words": (Words, 11, lambda *n: torch.randint(0, 11, (*n, 5))),
    "checkpoint": (lambda: Words(True), 11, lambda *n: torch.randint(0, 11, (*n, 5))),
}


def made(name, training):
    make, width, draw = CASES[name]
    torch.manual_seed(1)
    base = make().double().requires_grad_(False).train(training)
    models = [Headed(base, width).double().train(training) for _ in range(B)]
    return models, draw


def loss(part, x, y):
    return nn.functional.cross_entropy(part(x), y)


def train_alone(models, xs, ys):
    alone = [copy.deepcopy(model) for model in models]
    for index, model in enumerate(alone):
        optimizer = torch.optim.Adam(model.head.parameters(), lr=LRS[index])
        for step in range(STEPS):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(xs[step][index]), ys[step][index]).backward()
            optimizer.step()
    return alone


def train_array(array, xs, ys, threads):
    optimizer = optim.Adam(array.parameters(), lr=LRS)
    if threads:
        with dnnsuite.StepRunner(array, optimizer, loss, threads=threads) as runner:
            for x, y in zip(xs, ys, strict=True):
                runner.step(x, y)
    else:
        for x, y in zip(xs, ys, strict=True):
            optimizer.zero_grad()
            loss(array, x, y).sum().backward()
            optimizer.step()
    frozen = [p for p in array.parameters() if not p.requires_grad]
    assert not any(p.grad is not None for p in frozen)
    return optimizer, frozen


@pytest.mark.parametrize(
    ("name", "training", "threads"),
    [
        *(("images", False, 0), ("images", True, 0), ("images", False, 1), ("images", True, 2)),
        *(("words", False, 1), ("words", True, 2), ("checkpoint", True, 0), ("checkpoint", False, 1)),
    ],
)
def test_ten_steps(name, training, threads):
    models, draw = made(name, training)
    # Batches of both kinds, and of two sizes.
    sizes = [(6, 4)[step // 3 % 2] for step in range(STEPS)]
    xs = [dnnsuite.stack(draw(n), B) if step % 2 else draw(B, n) for step, n in enumerate(sizes)]
    ys = [torch.randint(0, 3, (B, n)) for n in sizes]
    before = copy.deepcopy(models[0].base.state_dict())
    alone = train_alone(models, xs, ys)
    array = dnnsuite.fuse(models)
    optimizer, frozen = train_array(array, xs, ys, threads)
    for index, model in enumerate(dnnsuite.unfuse(array)):
        for key, value in alone[index].state_dict().items():
            assert_near(model.state_dict()[key].double(), value.double(), f"{key} of model {index}")
    for key, value in models[0].base.state_dict().items():
        assert torch.equal(value, before[key])
    assert all(is_shared(p) for p in frozen)
    assert all(not optimizer.state[p] for p in frozen)


def test_a_model_that_diverges_leaves_the_others_alone():
    models, draw = made("images", False)
    with torch.no_grad():
        models[1].head.weight.fill_(float("nan"))
    xs, ys = [dnnsuite.stack(draw(6), B)] * STEPS, [torch.randint(0, 3, (B, 6))] * STEPS
    alone = train_alone(models, xs, ys)
    array = dnnsuite.fuse(models)
    train_array(array, xs, ys, 1)
    for index in (0, 2):
        assert_near(array.head.weight[index], alone[index].head.weight)
    assert array.head.weight[1].isnan().all()
