# SPDX-License-Identifier: MIT
"""Activations by an operator of ours: torch's values and gradients, in any memory order, for any numbers."""

import pytest
import torch
from torch.library import opcheck
from torch.nn import functional as F

from dnnsuite import ops
from dnnsuite.nn import functional
from dnnsuite.ops._activations import FEWEST_NUMBERS

CURVES = {
    "tanh": (functional.tanh, torch.tanh),
    "gelu_tanh": (lambda x: functional.gelu(x, approximate="tanh"), lambda x: F.gelu(x, approximate="tanh")),
    "mish": (functional.mish, F.mish),
    "softplus": (functional.softplus, F.softplus),
    "softplus-steep": (lambda x: functional.softplus(x, 3.0, 10.0), lambda x: F.softplus(x, 3.0, 10.0)),
    "elu": (lambda x: functional.elu(x, 0.7), lambda x: F.elu(x, 0.7)),
    "selu": (functional.selu, F.selu),
}
SPECIAL = [0.0, -0.0, 1e-30, -1e-30, 1e30, -1e30, float("inf"), -float("inf"), float("nan")]
curve = pytest.mark.parametrize("name", CURVES)


def numbers(models=2):
    """Small, usual and large numbers, as many as make the operator worth its call."""
    parts = [torch.linspace(-4, 4, 9001), torch.linspace(-80, 80, 2001), torch.linspace(-1e-3, 1e-3, 1001)]
    return torch.cat(parts)[None].repeat(models, 1)


def made_by_ours(y):
    return type(y.grad_fn).__name__ in ("AgainBackward", "_TanhBackward")


@curve
def test_values_and_gradients(name):
    ours, theirs = CURVES[name]
    x, exact = numbers().requires_grad_(), numbers().double().requires_grad_()
    y, wanted = ours(x), theirs(exact)
    assert made_by_ours(y)
    torch.testing.assert_close(y.double(), wanted, rtol=4e-7, atol=3e-7)
    grad = torch.randn(x.shape)
    (dx,), (dwanted,) = torch.autograd.grad(y, x, grad), torch.autograd.grad(wanted, exact, grad.double())
    torch.testing.assert_close(dx.double(), dwanted, rtol=1e-6, atol=1e-6)


@curve
def test_special_values_are_torchs(name):
    ours, theirs = CURVES[name]
    x = numbers()
    x[:, : len(SPECIAL)] = torch.tensor(SPECIAL)
    got, wanted = ours(x)[0, : len(SPECIAL)], theirs(x)[0, : len(SPECIAL)]
    torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-30, equal_nan=True)


@curve
def test_memory_order_stays(name):
    ours, theirs = CURVES[name]
    x = torch.randn(2, 4, 24, 24, 8).movedim(-1, 2).requires_grad_()
    y = ours(x)
    assert y.stride() == x.stride()
    torch.testing.assert_close(y, theirs(x), rtol=1e-6, atol=1e-6)
    y.sum().backward()
    assert x.grad.stride() == x.stride()
    part = torch.randn(2, 40, 1000)[:, :, :700]  # with gaps
    torch.testing.assert_close(ours(part), theirs(part), rtol=1e-6, atol=1e-6)


@curve
def test_a_model_has_the_same_bits_alone(name):
    ours, _ = CURVES[name]
    x = torch.randn(3, 11_000)
    together = ours(x)
    assert all(torch.equal(ours(x[i : i + 1])[0], together[i]) for i in range(3))


@curve
def test_gradients_of_gradients(name):
    ours, theirs = CURVES[name]
    results = []
    for function in (ours, theirs):
        x = numbers().requires_grad_()
        (dx,) = torch.autograd.grad(function(x).square().sum(), x, create_graph=True)
        results.append(torch.autograd.grad(dx.sum(), x)[0])
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)


@curve
def test_other_tensors_are_torchs(name):
    ours, theirs = CURVES[name]
    for x in (torch.randn(2, 5), numbers().double(), numbers().bfloat16(), torch.randn(1).expand(2, 9000)):
        assert torch.equal(ours(x), theirs(x))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(ours(numbers()), theirs(numbers()))


@pytest.mark.parametrize("name", FEWEST_NUMBERS)
def test_it_is_a_complete_operator(name):
    opcheck(
        torch.ops.dnnsuite.activate,
        (torch.randn(2, 9), name, 1.0, 20.0),
        test_utils=("test_schema", "test_faketensor", "test_autograd_registration"),
    )


def test_settings_that_only_torch_knows():
    x = numbers()
    assert torch.equal(functional.softplus(x, -1.0), F.softplus(x, -1.0))
    assert torch.equal(functional.softplus(x, 1.0, 1e9), F.softplus(x, 1.0, 1e9))
    written = x.clone()
    assert functional.elu(written, inplace=True) is written
    assert torch.equal(functional.gelu(x), F.gelu(x))
    with pytest.raises(RuntimeError, match="curve must be tanh"):
        torch.ops.dnnsuite.activate(x, "sine", 0.0, 0.0)
    assert ops.activate(torch.randn(2, 5), "tanh") is None
