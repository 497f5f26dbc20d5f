# SPDX-License-Identifier: MIT
"""Dropout: the mask is the one that the reference defines, and a fair one; arguments are checked."""

import math

import pytest
import torch

from dnnsuite import ops
from random_reference import dropout_mask

P = torch.tensor([0.1, 0.5, 0.9])
RNG = torch.tensor([[123456789012345, 7], [-3, 2**40], [2**62, 0]])


@pytest.mark.parametrize("shape", [(3, 1), (3, 127), (3, 128), (3, 129), (3, 5, 7, 11), (3, 5000)])
def test_mask_is_the_reference(shape, device):
    got = ops.dropout(torch.ones(shape, device=device), P.to(device), RNG.to(device))
    assert torch.equal(got.cpu(), dropout_mask(P, RNG, shape))


def test_mask_at_a_far_element(device):
    """Element numbers beyond 32 bits of bytes: the counter's upper word is used from 2^35 elements on."""
    n = 2**20 + 3
    got = ops.dropout(torch.ones(1, n, device=device), P[:1].to(device), RNG[:1].to(device)).cpu()
    assert torch.equal(got[:, -200:], dropout_mask(P[:1], RNG[:1], (1, n))[:, -200:])


def test_backward_drops_the_same_elements(device):
    x = torch.randn(3, 400, device=device, requires_grad=True)
    y = ops.dropout(x, P.to(device), RNG.to(device))
    y.sum().backward()
    torch.testing.assert_close(x.grad * x, y)


def test_rate(device):
    """The share of dropped elements is within five standard deviations of p, and the mean is one."""
    n = 400_000
    mask = ops.dropout(torch.ones(3, n, device=device), P.to(device), RNG.to(device)).cpu()
    for model, p in enumerate(P.tolist()):
        dropped = float((mask[model] == 0).float().mean())
        assert abs(dropped - p) < 5 * math.sqrt(p * (1 - p) / n)
        assert abs(float(mask[model].mean()) - 1) < 5 * math.sqrt(p / (1 - p) / n)


@pytest.mark.parametrize("lag", [1, 2, 16, 128])
def test_neighbours_are_independent(lag):
    dropped = (ops.dropout(torch.ones(1, 400_000), torch.tensor([0.5]), RNG[:1])[0] == 0).float() - 0.5
    covariance = float((dropped[lag:] * dropped[:-lag]).mean())
    assert abs(covariance) < 5 * 0.25 / math.sqrt(400_000)


def test_models_and_steps_are_independent():
    rng = torch.tensor([[1, 0], [1, 1], [2, 0], [1 + 2**32, 0], [1, 2**32]])
    dropped = (ops.dropout(torch.ones(5, 400_000), torch.full((5,), 0.5), rng) == 0).float() - 0.5
    for a in range(5):
        for b in range(a):
            assert abs(float((dropped[a] * dropped[b]).mean())) < 5 * 0.25 / math.sqrt(400_000)


@pytest.mark.parametrize(("p", "value"), [(0.0, 1.0), (1.0, 0.0), (1e-6, 1.0)])
def test_extreme_rates(p, value, device):
    """A rate that rounds to no 65536th at all drops nothing."""
    x = torch.ones(1, 1000, device=device)
    y = ops.dropout(x, torch.tensor([p], device=device), RNG[:1].to(device))
    assert torch.equal(y, torch.full_like(x, value))


def test_strided_generators():
    """rng may be a column block of something larger."""
    wide = torch.stack([RNG, RNG + 1], -1)[..., 0]
    assert not wide.is_contiguous()
    assert torch.equal(ops.dropout(torch.ones(3, 300), P, wide), ops.dropout(torch.ones(3, 300), P, RNG))


def test_gelu_far_out():
    x = torch.tensor([[-200.0, -10.0, -5.0, 0.0, 5.0, 10.0, 200.0, 3e38]])
    y = ops.bias_act_dropout(x, activation="gelu")
    torch.testing.assert_close(y, torch.nn.functional.gelu(x.double()).float(), rtol=1e-6, atol=2e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"p": torch.tensor([0.1, 0.5])}, r"p must have shape \[3\], not \[2\]"),
        ({"p": torch.tensor([0.1, 0.5, 1.5])}, r"p must be within \[0, 1\], not 1.5 \(model 2\)"),
        ({"p": torch.tensor([0.1, float("nan"), 0.5])}, r"p must be within \[0, 1\], not -?nan \(model 1\)"),
        ({"p": P.double()}, "p must be Float, not Double"),
        ({"p": None}, "p and rng go together"),
        ({"rng": RNG[:, :1]}, r"rng must have shape \[3, 2\], not \[3, 1\]"),
        ({"rng": RNG.int()}, "rng must be Long, not Int"),
        ({"bias": torch.ones(3, 4)}, r"bias must have shape \[3, 5\], not \[3, 4\]"),
        ({"bias": torch.ones(3, 5).double()}, "bias must be Float, not Double"),
        ({"x": torch.ones(3, 5, dtype=torch.int32)}, "x must be float32 or float64"),
        ({"x": torch.tensor(1.0)}, "x must have at least 1 dimensions"),
        ({"activation": "tanh"}, "activation must be 'none', 'relu' or 'gelu', not 'tanh'"),
    ],
)
def test_bad_arguments(change, message):
    arguments = {"x": torch.ones(3, 5), "bias": None, "activation": "relu", "p": P, "rng": RNG} | change
    with pytest.raises(RuntimeError, match=message):
        ops.bias_act_dropout(**arguments)


def test_residual_of_another_shape():
    with pytest.raises(RuntimeError, match=r"residual must have shape \[3, 5\], not \[3, 4\]"):
        ops.bias_dropout_add(torch.ones(3, 5), None, torch.ones(3, 4))
