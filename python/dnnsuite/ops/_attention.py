# SPDX-License-Identifier: MIT
"""Self-attention over short sequences, from packed queries, keys and values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import InvalidArgument
from ._pointwise import dropout
from .library import differentiable, fake, fakes_like, library, saves

LONGEST_ATTENTION = 128
"""Longest sequence for which this package's operator is used, because a head's scores still fit into the cache."""


fake("attention", lambda qkv: qkv.new_empty((*qkv.shape[:-1], qkv.shape[-1] // 3)))
fakes_like("qkv", "attention_backward")


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    qkv, p, rng, mask = ctx.saved_tensors
    dqkv = library.attention_backward.default(grad, qkv, ctx.num_heads, p, rng, ctx.causal, mask)
    return dqkv, None, None, None, None, None


def attention_by_products(
    qkv: Tensor, num_heads: int, p: Tensor | None, rng: Tensor | None, causal: bool, key_padding_mask: Tensor | None
) -> Tensor:
    """Compute `attention` by two batched matrix products and torch's softmax, for sequences of any length."""
    models, sequences, length, width = qkv.shape
    if num_heads < 1 or width % (3 * num_heads):
        raise InvalidArgument(
            f"attention: the last dimension of qkv must be 3 * num_heads * head_dim; {width} does not divide "
            f"by 3 * {num_heads}"
        )
    head_dim = width // (3 * num_heads)
    heads = qkv.reshape(models, sequences, length, 3, num_heads, head_dim).permute(3, 0, 1, 4, 2, 5)
    query, key, value = heads.unbind(0)  # [B, N, H, L, d]
    scores = query @ key.transpose(-2, -1) * head_dim**-0.5
    if causal:
        future = torch.ones(length, length, dtype=torch.bool, device=qkv.device).triu(1)
        scores = scores.masked_fill(future, -torch.inf)
    if key_padding_mask is not None:
        scores = scores.masked_fill(key_padding_mask[:, :, None, None, :], -torch.inf)
    probabilities = scores.softmax(-1)
    if p is not None and rng is not None:
        probabilities = dropout(probabilities, p, rng)
    return (probabilities @ value).transpose(2, 3).reshape(models, sequences, length, width // 3)


_attention = differentiable(
    library.attention.default, saves(0, 2, 3, 5, num_heads=1, causal=4), _backward, attention_by_products
)


def attention(
    qkv: Tensor,
    num_heads: int,
    p: Tensor | None = None,
    rng: Tensor | None = None,
    causal: bool = False,
    key_padding_mask: Tensor | None = None,
) -> Tensor:
    """Compute dropout(softmax(q kᵀ / √d)) v for every head, from qkv [B, N, L, 3E] to [B, N, L, E].

    Args:
        qkv: q, k and v, one after the other in the last dimension.
        num_heads: number of heads, which divides E.
        p, rng: dropout of the probabilities, as in `dropout`, with elements in the order [N, H, L, L].
        causal: each token attends only to itself and to earlier tokens.
        key_padding_mask: bool [B, N, L], True where a key is ignored. The result is NaN for a token without any key.

    Only the inputs are saved for the backward pass. Sequences longer than 128 are computed by torch's operators, with
    the same masks.
    """
    long = qkv.dim() == 4 and qkv.shape[2] > LONGEST_ATTENTION
    return (attention_by_products if long else _attention)(qkv, num_heads, p, rng, causal, key_padding_mask)
