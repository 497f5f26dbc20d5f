# SPDX-License-Identifier: MIT
"""Self-attention of packed projections on a GPU: our kernel, two batched products, or torch's single call."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from .. import ops
from .._ways import Way, fastest


def attend_packed(
    qkv: Tensor, num_heads: int, p: Tensor | None, rng: Tensor | None, causal: bool, key_padding_mask: Tensor | None
) -> Tensor:
    """Compute `ops.attention`; on a GPU by the fastest of several ways."""
    if not qkv.is_cuda:
        return ops.attention(qkv, num_heads, p, rng, causal, key_padding_mask)
    ways = attention_ways(num_heads, p, rng, causal, key_padding_mask)
    facts = num_heads, p is not None, causal, key_padding_mask is not None
    return ways[fastest("attention", ways, (qkv,), *facts)](qkv)


def attention_ways(
    num_heads: int, p: Tensor | None, rng: Tensor | None, causal: bool, key_padding_mask: Tensor | None
) -> dict[str, Way]:
    """Return the ways by name; each takes qkv `[B, N, L, 3E]`.

    With dropout torch's call is not among them: it would draw from the device's generator, not from each model's
    stream.
    """
    options = num_heads, p, rng, causal, key_padding_mask
    ways: dict[str, Way] = {
        "kernel": lambda qkv: ops.attention(qkv, *options),
        "products": lambda qkv: ops.attention_by_products(qkv, *options),
    }
    if p is None:
        ways["one call"] = lambda qkv: _in_one_call(qkv, num_heads, causal, key_padding_mask)
    return ways


def _in_one_call(qkv: Tensor, num_heads: int, causal: bool, key_padding_mask: Tensor | None) -> Tensor:
    models, sequences, length, width = qkv.shape
    packed = qkv.reshape(models * sequences, length, 3, num_heads, width // (3 * num_heads))
    query, key, value = packed.permute(2, 0, 3, 1, 4).unbind(0)
    if key_padding_mask is None:
        y = scaled_dot_product_attention(query, key, value, is_causal=causal)
    else:
        seen = ~key_padding_mask.reshape(models * sequences, 1, 1, length)
        if causal:
            seen = seen & torch.ones(length, length, dtype=torch.bool, device=qkv.device).tril()
        y = scaled_dot_product_attention(query, key, value, attn_mask=seen)
        # What a token gets that sees none is not the same in all of torch's kernels: NaN, as in the other ways.
        blind = ~seen.any(-1, keepdim=True)
        y = y * torch.ones_like(blind, dtype=y.dtype).masked_fill_(blind, torch.nan)
    return y.transpose(1, 2).reshape(models, sequences, length, width // 3)
