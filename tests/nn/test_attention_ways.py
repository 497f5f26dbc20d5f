# SPDX-License-Identifier: MIT
"""Every way of self-attention on a GPU, on a CPU, against the definition."""

import pytest
import torch

from dnnsuite.nn._attention import attention_ways


def definition(qkv, heads, causal, padding=None):
    query, key, value = (x.unflatten(-1, (heads, -1)).transpose(2, 3) for x in qkv.chunk(3, -1))
    scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores[0, 0, 0], dtype=torch.bool).triu(1), -torch.inf)
    if padding is not None:
        scores = scores.masked_fill(padding[:, :, None, None, :], -torch.inf)
    return (scores.softmax(-1) @ value).transpose(2, 3).flatten(-2)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_every_way_is_the_definition(causal, padded, device):
    torch.manual_seed(0)
    padding = None
    if padded:
        padding = torch.rand(2, 3, 5, device=device) < 0.4
        padding[..., 0] = False
    qkv = torch.randn(2, 3, 5, 24, dtype=torch.float64).to(device).requires_grad_()
    expected = definition(qkv, 2, causal, padding)
    weights = torch.randn_like(expected)
    (wanted,) = torch.autograd.grad(expected, qkv, weights)
    ways = attention_ways(2, None, None, causal, padding)
    assert set(ways) == {"kernel", "products", "one call"}
    for way in ways.values():
        y = way(qkv)
        torch.testing.assert_close(y, expected)
        torch.testing.assert_close(torch.autograd.grad(y, qkv, weights)[0], wanted)


def test_in_every_way_a_token_that_sees_nothing_gets_nan(device):
    qkv = torch.randn(2, 3, 5, 24, device=device)
    padding = torch.zeros(2, 3, 5, dtype=torch.bool, device=device)
    padding[0, 1], padding[1, 2, 0] = True, True
    for causal, blind in ((False, {(0, 1, i) for i in range(5)}), (True, {(1, 2, 0), *((0, 1, i) for i in range(5))})):
        for name, way in attention_ways(2, None, None, causal, padding).items():
            y = way(qkv)
            assert set(map(tuple, y.isnan().any(-1).nonzero().tolist())) == blind, name
            assert y.isnan().sum() == 8 * len(blind)


def test_ways_that_drop_draw_the_same_numbers():
    qkv = torch.randn(2, 3, 5, 24)
    p, rng = torch.tensor([0.2, 0.5]), torch.tensor([[1, 2], [3, 4]])
    padding = torch.zeros(2, 3, 5, dtype=torch.bool)
    padding[:, 0, 3:] = True
    ways = attention_ways(2, p, rng, False, padding)
    one, other = (way(qkv) for way in ways.values())
    torch.testing.assert_close(one, other)
