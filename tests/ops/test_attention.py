# SPDX-License-Identifier: MIT
"""Attention beside the table of tests/support/operator_cases.py: torch's own operator, lengths, arguments."""

import pytest
import torch

from dnnsuite import ops


def test_equals_scaled_dot_product_attention(device):
    qkv = torch.randn(2, 3, 20, 3 * 24, device=device)
    q, k, v = (t.transpose(2, 3) for t in qkv.view(2, 3, 20, 3, 4, 6).unbind(3))
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(2, 3)
    torch.testing.assert_close(ops.attention(qkv, 4, causal=True), expected.flatten(-2), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("length", [1, 15, 16, 31, 33, 127, 128])
def test_lengths(length, device):
    """The operator and its composition agree, gradients and dropped probabilities included."""
    from dnnsuite.ops import attention_by_products

    qkv = torch.randn(1, 2, length, 3 * 10, device=device, requires_grad=True)
    p, rng = torch.tensor([0.3], device=device), torch.tensor([[5, 6]], device=device)
    own, composed = ops.attention(qkv, 2, p, rng), attention_by_products(qkv, 2, p, rng, False, None)
    torch.testing.assert_close(own, composed, rtol=1e-5, atol=1e-5)
    weights = torch.randn_like(own)
    a, b = (torch.autograd.grad(y, qkv, weights)[0] for y in (own, composed))
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_large_scores(device):
    qkv = 100 * torch.randn(1, 1, 8, 3 * 4, device=device)
    y = ops.attention(qkv, 1)
    assert torch.isfinite(y).all()


def test_a_token_that_sees_nothing(device):
    mask = torch.ones(1, 1, 4, dtype=torch.bool, device=device)
    assert torch.isnan(ops.attention(torch.randn(1, 1, 4, 12, device=device), 1, key_padding_mask=mask)).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"qkv": torch.ones(1, 4, 12)}, r"qkv must be \[B, N, L, 3E\], not \[1, 4, 12\]"),
        ({"num_heads": 5}, r"12 does not divide by 3 \* 5"),
        ({"num_heads": 0}, r"12 does not divide by 3 \* 0"),
        ({"num_heads": 5, "qkv": torch.ones(1, 1, 200, 12)}, r"12 does not divide by 3 \* 5"),
        ({"key_padding_mask": torch.ones(1, 2, 4)}, "key_padding_mask must be Bool, not Float"),
        ({"key_padding_mask": torch.ones(1, 4).bool()}, r"key_padding_mask must have shape \[1, 2, 4\]"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises((RuntimeError, ValueError), match=message):
        ops.attention(**({"qkv": torch.ones(1, 2, 4, 12), "num_heads": 2} | arguments))
