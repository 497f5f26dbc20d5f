# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import stack
from dnnsuite.errors import InvalidArgument
from dnnsuite.nn.functional import scaled_dot_product_attention
from dnnsuite.nn.functional.attention import attention_ways
from helpers import assert_near

LENGTHS = [(5, 7), (40, 50)]  # as it is written, and by torch's kernels


def run(q, k, v, mask=None, **arguments):
    """The array's result and each model's."""
    mine = scaled_dot_product_attention(q, k, v, mask, **arguments)
    plain = torch.nn.functional.scaled_dot_product_attention
    alone = [
        plain(a, b, c, None if mask is None else mask[i], **arguments)
        for i, (a, b, c) in enumerate(zip(q, k, v, strict=True))
    ]
    return mine, torch.stack(alone)


def qkv(L, S, leading=(3, 2), B=2):
    return torch.randn(B, *leading, L, 6), torch.randn(B, *leading, S, 6), torch.randn(B, *leading, S, 4)


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("leading", [(), (2,), (3, 2), (2, 3, 2)])
@pytest.mark.parametrize("arguments", [{}, {"is_causal": True}, {"scale": 0.3}])
def test_matches_models(lengths, leading, arguments):
    assert_near(*run(*qkv(*lengths, leading), **arguments))


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("shape", [(), (1, 1), (2,), (3, 1), (3, 2)])
@pytest.mark.parametrize("boolean", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_masks_match_models(lengths, shape, boolean, shared):
    L, S = lengths
    mask = torch.randn(2, *shape, L, S)
    if boolean:
        mask = mask < 1.0
        mask[..., 0] = True
    if shared:
        mask = stack(mask[0], B=2)
    assert_near(*run(*qkv(L, S), mask))


@pytest.mark.parametrize("lengths", LENGTHS)
def test_heads_in_groups(lengths):
    q, _, _ = qkv(*lengths, (3, 4))
    _, k, v = qkv(*lengths, (3, 2))
    assert_near(*run(q, k, v, enable_gqa=True))
    with pytest.raises(InvalidArgument, match="4 and"):
        scaled_dot_product_attention(q, *qkv(*lengths, (3, 3))[1:], enable_gqa=True)


def test_a_models_bits_depend_on_neither_width_nor_slot():
    q, k, v = qkv(40, 50, B=5)
    wide = scaled_dot_product_attention(q, k, v)
    for order in ([3], [4, 1, 0]):
        assert torch.equal(scaled_dot_product_attention(q[order], k[order], v[order]), wide[order])


def test_dropout_is_each_models_own():
    q, k, v = qkv(20, 30)
    v = torch.ones_like(v)
    rng = torch.tensor([[5, 0], [6, 0]])
    y = scaled_dot_product_attention(q, k, v, dropout_p=[0.0, 0.5], rng=rng)
    assert_near(y[0], torch.ones_like(y[0]))
    assert not torch.allclose(y[1], torch.ones_like(y[1]))
    assert abs(float(y[1].mean()) - 1) < 0.1
    again = scaled_dot_product_attention(q[1:], k[1:], v[1:], dropout_p=0.5, rng=rng[1:])
    assert_near(again[0], y[1])
    assert not torch.equal(scaled_dot_product_attention(q, k, v, dropout_p=0.5)[1], y[1])


def test_refuses_a_mask_beside_is_causal_and_inputs_without_models():
    q, k, v = qkv(5, 5)
    with pytest.raises(InvalidArgument, match="exclude each other"):
        scaled_dot_product_attention(q, k, v, torch.ones(2, 5, 5, dtype=torch.bool), is_causal=True)
    with pytest.raises(InvalidArgument, match="of B models"):
        scaled_dot_product_attention(q[0, 0, 0], k, v)


@pytest.mark.parametrize("masked", [None, "shared", "own"])
@pytest.mark.parametrize("is_causal", [False, True])
def test_every_way_of_a_gpu_is_every_other(masked, is_causal, device):
    q, k, v = (x.to(device).double().requires_grad_() for x in qkv(6, 6))
    mask = None if masked is None else torch.rand(2, 1, 1, 6, 6, device=device) < 0.3
    if mask is not None:
        mask[..., 0] = False
        mask = mask[0, 0, 0] if masked == "shared" else mask
    found = []
    for way in attention_ways(is_causal and mask is None, 0.3).values():
        y = way(q, k, v, mask)
        found.append((y, *torch.autograd.grad(y.square().sum(), (q, k, v))))
    assert len(found) == 2
    torch.testing.assert_close(*found)
