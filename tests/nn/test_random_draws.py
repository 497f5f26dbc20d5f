# SPDX-License-Identifier: MIT
"""Random numbers of torch's functions, one stream per model, as one operator."""

import pytest
import torch

from dnnsuite import ops
from dnnsuite.nn import random_streams
from dnnsuite.nn.model_tensor import NotFusable
from dnnsuite.nn.random_draws import draw, fill

STREAM = torch.tensor([[3, 0], [4, 7]])
OWN = torch.full((2, 5), 0.5)


def generators():
    return random_streams.generators_of(STREAM, torch.device("cpu"))


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("rand", (5, 2), {"dtype": torch.bfloat16}),
        ("randn", ([5],), {"dtype": torch.bfloat16}),
        ("randint", (0, 9, (5,)), {"dtype": torch.int32, "device": torch.device("cpu")}),
        ("randperm", (torch.tensor(6),), {}),
        ("normal", (0.0, 2.0, (3,)), {}),
        ("multinomial", (torch.ones(8), 3), {"replacement": False}),
    ],
)
def test_each_model_draws_from_its_own_generator(name, args, kwargs):
    drawn = draw(name, args, kwargs, [], STREAM)
    args = tuple(int(a) if isinstance(a, torch.Tensor) and a.dim() == 0 else a for a in args)
    each = [getattr(torch, name)(*args, **kwargs, generator=one) for one in generators()]
    assert torch.equal(drawn, torch.stack(each))


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "kind"),
    [
        ("rand", (5, 2), {}, "uniform"),
        ("randn", ([5, 2],), {"dtype": torch.float64}, "normal"),
        ("randn", (), {"size": (5, 2), "device": "cpu"}, "normal"),
    ],
)
def test_numbers_of_ours_are_made_in_the_shape(name, args, kwargs, kind):
    drawn = draw(name, args, kwargs, [], STREAM)
    dtype = kwargs.get("dtype", torch.float32)
    assert torch.equal(drawn, ops.random_numbers(torch.empty(2, 5, 2, dtype=dtype), STREAM, kind, 0.0, 1.0))


@pytest.mark.parametrize(
    ("method", "args", "kwargs", "numbers"),
    [
        ("uniform_", (), {}, ("uniform", 0.0, 1.0)),
        ("uniform_", (-1,), {"to": 2.5}, ("uniform", -1.0, 2.5)),
        ("normal_", (), {"std": 0.02}, ("normal", 0.0, 0.02)),
        ("bernoulli_", (0.8,), {}, ("bernoulli", 0.8, 0.0)),
        ("exponential_", (), {}, ("exponential", 1.0, 0.0)),
    ],
)
def test_memory_is_filled_with_numbers_of_ours(method, args, kwargs, numbers):
    like = torch.empty(2, 4, 5)
    assert torch.equal(fill(method, like, STREAM, args, kwargs), ops.random_numbers(like, STREAM, *numbers))


@pytest.mark.parametrize(
    ("method", "args", "error"),
    [
        ("normal_", (0.0, -1.0), "std"),
        ("uniform_", (2.0, 1.0), "uniform_"),
        ("bernoulli_", (1.5,), "bernoulli_"),
        ("exponential_", (-1.0,), "exponential_"),
    ],
)
def test_what_torch_refuses_is_refused(method, args, error):
    with pytest.raises(RuntimeError, match=error):
        fill(method, torch.empty(2, 4), STREAM, args)


def test_integers_are_all_as_likely():
    drawn = draw("randint", (-2, 3, (20_000,)), {}, [], STREAM)
    assert drawn.dtype == torch.int64
    for own in drawn:
        values, counts = own.unique(return_counts=True)
        assert values.tolist() == [-2, -1, 0, 1, 2]
        assert (counts - 4000).abs().max() < 300
    assert torch.equal(draw("randint", (), {"low": -2, "high": 3, "size": [20_000]}, [], STREAM[1:]), drawn[1:])


def test_tensors_of_each_model_are_cut_and_others_are_shared():
    shared = torch.rand(5)
    drawn = draw("normal", (OWN, shared), {}, [OWN], STREAM)
    each = [torch.normal(OWN[i], shared, generator=one) for i, one in enumerate(generators())]
    assert torch.equal(drawn, torch.stack(each))


def test_memory_is_filled_model_by_model():
    drawn = fill("bernoulli_", torch.empty(2, 4, 5), STREAM, (OWN,), own=[OWN])
    each = [torch.empty(4, 5).bernoulli_(OWN[i], generator=one) for i, one in enumerate(generators())]
    assert torch.equal(drawn, torch.stack(each))


def test_a_draw_passes_zeros_back_as_torchs_does():
    rate = OWN.clone().requires_grad_()
    draw("bernoulli", (rate,), {}, [rate], STREAM).sum().backward()
    assert torch.equal(rate.grad, torch.zeros_like(rate))


def test_a_drawn_leaf_may_want_gradients():
    leaf = draw("rand", (3,), {"requires_grad": True}, [], STREAM)
    assert leaf.is_leaf
    assert leaf.requires_grad


def test_an_argument_without_a_form_is_named():
    with pytest.raises(NotFusable, match="rand takes a object"):
        draw("rand", (object(),), {}, [], STREAM)
