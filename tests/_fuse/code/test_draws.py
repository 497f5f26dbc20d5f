# SPDX-License-Identifier: MIT
"""Plain models draw the numbers that they draw in an array; what else draws is seen."""

import pytest
import torch
from torch.nn import functional

import dnnsuite
from dnnsuite import nn, optim
from dnnsuite._fuse.code.draws import Draws, StreamDraws, draw_as
from helpers import make_models


def test_a_plain_layer_draws_as_the_arrays_does():
    own, other = nn.Dropout(0.5, B=1), nn.Dropout(0.5, B=1)
    other.rng.copy_(own.rng)
    plain, x = torch.nn.Dropout(0.5), torch.ones(4, 16)
    for _ in range(2):  # told twice, it is still of one class
        draw_as(plain, own)
    assert isinstance(plain, torch.nn.Dropout)
    for _ in range(3):
        torch.testing.assert_close(plain(x), other(x.unsqueeze(0))[0])
    assert torch.equal(plain.eval()(x), x)


def test_what_draws_by_the_generator_is_seen():
    with Draws() as draws, torch.random.fork_rng():
        torch.ones(3).mul(2)
        assert not draws.drew
        torch.rand(3)
        assert draws.drew


def test_a_function_of_ones_generator_draws_from_that():
    generator = torch.Generator().manual_seed(1)
    expected = torch.rand(3, generator=torch.Generator().manual_seed(1))
    with StreamDraws(torch.zeros(1, 2, dtype=torch.int64)).on():
        assert torch.equal(torch.rand(3, generator=generator), expected)


FUNCTIONS = {
    "rand": lambda h: h + torch.rand(h.shape, dtype=h.dtype),
    "randn": lambda h: h * torch.randn(4, dtype=h.dtype),
    "randn_like": lambda h: h + torch.randn_like(h),
    "rand_like of a constant": lambda h: h + torch.rand_like(torch.ones(5, 4, dtype=h.dtype)),
    "randint": lambda h: h * torch.randint(0, 5, h.shape),
    "randint_like": lambda h: h + torch.randint_like(h, 3),
    "randperm": lambda h: h[torch.randperm(len(h))],
    "bernoulli": lambda h: h * torch.bernoulli(torch.sigmoid(h.detach())),
    "normal": lambda h: h + torch.normal(h.detach(), 1.0),
    "multinomial": lambda h: h[torch.multinomial(h.detach().abs().sum(1) + 1, 3)],
    "in place": lambda h: h + torch.empty_like(h).uniform_(-1, 1) + torch.empty(4, dtype=h.dtype).normal_(),
    "dropout": lambda h: functional.dropout(h, 0.5),
    "dropout in place": lambda h: functional.dropout(h * 2, 0.5, inplace=True),
    "dropout of a constant": lambda h: h * functional.dropout(torch.ones(4, dtype=h.dtype), 0.5),
    "no dropout, then numbers": lambda h: functional.dropout(h, 0.0) + torch.rand_like(h),
    "dropout1d": lambda h: functional.dropout1d(h[None], 0.5)[0],
    "alpha_dropout": lambda h: functional.alpha_dropout(h, 0.5, training=True),
    "rrelu": lambda h: functional.rrelu(h, training=True),
    "gumbel_softmax": lambda h: functional.gumbel_softmax(h),
    "attention": lambda h: functional.scaled_dot_product_attention(h, h, h, dropout_p=0.5),
    "gamma": lambda h: h * torch.distributions.Gamma(h.detach().abs() + 1, 1.0).rsample(),
    "distribution": lambda h: torch.distributions.Normal(h, 1.0).rsample(),
}


class Noisy(torch.nn.Module):
    """Code of each model's own around a function that draws."""

    def __init__(self, function):
        super().__init__()
        self.first, self.last, self.function = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2), function

    def forward(self, x):
        h = self.first(x)
        if self.branches:
            h = h if float(h.detach().sum()) > -1e9 else -h
        return self.last(self.function(h)).square().mean()


class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.drop, self.slopes = torch.nn.Dropout(0.3), torch.nn.RReLU()
        self.rnn, self.attention = torch.nn.LSTM(4, 4, 2, dropout=0.5), torch.nn.MultiheadAttention(4, 2, dropout=0.3)
        self.block = torch.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.2)

    def forward(self, h):
        h = self.rnn(h[:, None])[0]
        return self.slopes(self.drop(self.block(self.attention(h, h, h)[0])))


def trained(models, branches):
    """Losses of three steps, all at once or, with `branches`, model by model."""
    for model in models:
        model.branches = branches
    array = dnnsuite.fuse(models, seeds=[3, 1, 2])
    optimizer = optim.SGD(array.parameters(), lr=0.1)
    batches = torch.randn(3, 3, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    before, losses = torch.get_rng_state(), []
    for x in batches:
        optimizer.zero_grad()
        loss = array(x)
        loss.sum().backward()
        optimizer.step()
        losses.append(loss.detach())
    assert torch.equal(torch.get_rng_state(), before)
    assert [bool(cover.reason) for cover in array.coverage() if cover.how == "per model"] == [True] * branches
    return torch.stack(losses), array


@pytest.mark.parametrize("name", [*FUNCTIONS, "layers"])
def test_model_by_model_the_numbers_are_those_of_all_at_once(name):
    function = FUNCTIONS.get(name)
    models = make_models(lambda: Noisy(Recurrent() if function is None else function), 3, torch.float64)
    at_once, expected = trained(models, False)
    one_by_one, array = trained(models, True)
    torch.testing.assert_close(one_by_one, at_once)
    for evaluated in (array, expected):
        evaluated.eval()(torch.ones(3, 5, 4, dtype=torch.float64))
    torch.testing.assert_close(nn.get_rng_state(array), nn.get_rng_state(expected))
    torch.testing.assert_close(array.state_dict(), expected.state_dict())


class ForAll(torch.nn.Module):
    """Its forward is for `[B, ...]` alone."""

    array_forward = True

    def __init__(self):
        super().__init__()
        self.inner, self.norm, self.drop = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5)

    def forward(self, h):
        assert h.dim() == 3
        return self.drop(self.norm(self.inner(h)))


def test_a_forward_for_all_models_inside_of_code_that_runs_model_by_model():
    models = make_models(lambda: Noisy(ForAll()), 3, torch.float64)
    at_once, expected = trained(models, False)
    one_by_one, array = trained(models, True)
    torch.testing.assert_close(one_by_one, at_once)
    torch.testing.assert_close(array.state_dict(), expected.state_dict())


def unruled(h):
    return torch.native_dropout(h, 0.5, True)[0]


def given_memory(h):
    return h + torch.rand(5, 4, dtype=h.dtype, out=torch.empty(5, 4, dtype=h.dtype))


@pytest.mark.parametrize("function", [unruled, given_memory])
def test_what_no_rule_knows_draws_from_the_generator_as_seeded_by_the_models_stream(function):
    models = make_models(lambda: Noisy(function), 3, torch.float64)
    for model in models:
        model.branches = True
    x = torch.randn(3, 5, 4, dtype=torch.float64)
    array, alone = dnnsuite.fuse(models, seeds=[3, 1, 2]), dnnsuite.fuse(models[1:2], seeds=[1])
    before = torch.get_rng_state()
    for _ in range(2):
        torch.testing.assert_close(array(x)[1:2], alone(x[1:2]))
    assert torch.equal(torch.get_rng_state(), before)


def test_layers_of_plain_models_follow_the_mode_of_the_array_in_all_their_parts():
    models = make_models(lambda: Noisy(torch.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.5)), 3, torch.float64)
    for model in models:
        model.branches = True
    x = torch.randn(3, 5, 4, dtype=torch.float64)
    array = dnnsuite.fuse(models)
    array(x)
    array.eval()
    for index, model in enumerate(models):
        torch.testing.assert_close(array(x)[index], model.eval()(x[index]))
