# SPDX-License-Identifier: MIT
"""Layers whose models are alike compute a shared batch once, in the modes in which they are."""

import copy

import pytest
import torch

import dnnsuite
from dnnsuite import nn
from dnnsuite.nn.sharing import is_shared, runs_once
from helpers import assert_near

B = 3
LAYERS = {
    "linear": (lambda: torch.nn.Linear(6, 4), (5, 6)),
    "convolution": (lambda: torch.nn.Conv2d(6, 4, 2), (5, 6, 3, 3)),
    "embedding": (lambda: torch.nn.Embedding(7, 4), (5, 6)),
    "layer norm": (lambda: torch.nn.LayerNorm(6), (5, 6)),
    "group norm": (lambda: torch.nn.GroupNorm(2, 6), (5, 6, 3)),
    "batch norm": (lambda: torch.nn.BatchNorm1d(6), (5, 6)),
    "instance norm": (lambda: torch.nn.InstanceNorm1d(6, affine=True, track_running_stats=True), (5, 6, 3)),
    "lstm": (lambda: torch.nn.LSTM(6, 4, 2, dropout=0.5, batch_first=True), (5, 2, 6)),
    "encoder": (lambda: torch.nn.TransformerEncoderLayer(6, 2, 8, batch_first=True), (5, 2, 6)),
    "dropout": (lambda: torch.nn.Dropout(0.5), (5, 6)),
    "pooling": (lambda: torch.nn.MaxPool1d(2), (5, 6, 4)),
}


def example(shape, name):
    return torch.randint(0, 7, shape) if name == "embedding" else torch.randn(shape)


@pytest.mark.parametrize("shared", [True, False], ids=["shared batch", "a batch for each"])
@pytest.mark.parametrize("name", LAYERS)
def test_in_eval_mode(name, shared):
    make, shape = LAYERS[name]
    torch.manual_seed(0)
    layer = make().requires_grad_(False).eval()
    array = dnnsuite.fuse([layer] * B)
    x = dnnsuite.stack(example(shape, name), B) if shared else torch.stack([example(shape, name)] * B)
    y, expected = array(x), layer(x[0])
    if name == "lstm":
        y, expected = y[0], expected[0]
    assert is_shared(y) == (shared or False)
    assert_near(y[2], expected)


def test_what_draws_is_each_models_own():
    array = dnnsuite.fuse([torch.nn.Dropout(0.5) for _ in range(B)])
    x = dnnsuite.stack(torch.ones(20, 20), B)
    y = array(x)
    assert not torch.equal(y[0], y[1])
    array.eval()
    assert is_shared(array(x))


def test_batch_norm_in_training_mode():
    torch.manual_seed(0)
    layer = torch.nn.BatchNorm1d(6).requires_grad_(False)
    alone = [copy.deepcopy(layer) for _ in range(B)]
    array = dnnsuite.fuse([layer] * B)
    x = torch.randn(5, 6)
    y = array(dnnsuite.stack(x, B))
    assert is_shared(y)  # the result is
    assert not is_shared(array.running_mean)  # what takes it in is not
    assert_near(y[1], alone[1](x))
    mine = torch.randn(B, 5, 6)
    y = array(mine)
    for index, own in enumerate(alone):
        if index != 1:
            own(x)
        assert_near(y[index], own(mine[index]))
        assert_near(array.running_var[index], own.running_var)
        assert array.num_batches_tracked[index] == own.num_batches_tracked == 2
    array.eval()
    assert_near(array(mine)[0], alone[0].eval()(mine[0]))


def test_runs_once_is_asked_at_each_call():
    layer = nn.Linear(6, 4, B=B).requires_grad_(False)
    x = dnnsuite.stack(torch.randn(5, 6), B)
    assert not runs_once(layer, (x,), {})  # each has its own weights
    layer = dnnsuite.fuse([torch.nn.Linear(6, 4).requires_grad_(False)] * B)._root
    assert runs_once(layer, (x,), {})
    assert not runs_once(layer, (x.clone(),), {})
    assert not runs_once(layer, (x.clone().expand(B, 5, 6).requires_grad_(),), {})


class Attending(torch.nn.Module):
    """Attention as transformers have it: the rate of a module, given to a function."""

    def __init__(self, rate):
        super().__init__()
        self.mix, self.attention, self.residual = (
            torch.nn.Linear(6, 18),
            torch.nn.Dropout(rate),
            torch.nn.Dropout(rate),
        )
        self.rate = rate

    def forward(self, x):
        q, k, v = self.mix(x).chunk(3, -1)
        dropped = self.attention.p if self.training else 0.0
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=dropped)
        return torch.nn.functional.dropout(self.residual(y), p=self.rate, training=self.training)


def test_what_drops_nothing_is_computed_once_in_training_mode():
    model = Attending(0.0).requires_grad_(False)
    array = dnnsuite.fuse([model] * B)
    x = torch.randn(5, 4, 6)
    y = array(dnnsuite.stack(x, B))
    assert is_shared(y)
    assert_near(y[1], model(x))
    array.attention.p = 0.5
    y = array(dnnsuite.stack(x, B))
    assert not torch.equal(y[0], y[1])


def test_draws_do_not_depend_on_what_was_computed_once_before():
    model, x = Attending(0.5).requires_grad_(False), torch.randn(5, 4, 6)
    together, alone = dnnsuite.fuse([model] * B, seeds=[1, 2, 3]), dnnsuite.fuse([model], seeds=[2])
    for training in (False, True):
        found = together.train(training)(dnnsuite.stack(x, B))[1], alone.train(training)(x[None])[0]
        assert torch.equal(*found)
