# SPDX-License-Identifier: MIT
"""Scaled dot-product attention of B models."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ... import ops
from ..._torch import transforming
from ..._ways import Way, fastest
from ...errors import InvalidArgument
from ...ops.device import numbers
from ...ops.shared import Maybe
from .._models import computable
from ..array_module import per_model
from .dropout import drawn

Tensor = torch.Tensor

SHORT = 32 * 32
"""Scores of one head, L * S, up to which two batched products are faster for many heads: torch's backward pass runs the
heads one by one."""
FEW = 2**14
"""Elements of one model's queries up to which torch's single call is faster than the calls around two products."""


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float | Sequence[float] | Tensor = 0.0,
    is_causal: bool = False,
    scale: float | Sequence[float] | None = None,
    enable_gqa: bool = False,
    *,
    rng: Tensor | None = None,
) -> Tensor:
    """`torch.nn.functional.scaled_dot_product_attention` for B models.

    `query` is `[B, ..., L, E]`, `key` `[B, ..., S, E]` and `value` `[B, ..., S, Ev]`; the result is `[B, ..., L, Ev]`.
    `attn_mask` is `[B, ..., L, S]`: boolean, True where a key takes part, or floats that are added to the scores; its
    middle dimensions may be missing or 1. `scale` and the rate `dropout_p` are one number, or one per model. Dropout
    draws from the streams `rng` `[B, 2]` (None: from torch's generator). Second derivatives need
    `torch.nn.attention.sdpa_kernel(SDPBackend.MATH)`, as in torch.
    """
    if query.dim() < 3:
        raise InvalidArgument(f"query of B models is [B, ..., L, E], got {list(query.shape)}")
    if is_causal and attn_mask is not None:
        raise InvalidArgument("attn_mask and is_causal=True exclude each other, as in torch")
    if enable_gqa:
        query, key, value = _grouped(query, key, value)
    if attn_mask is not None:
        for _ in range(query.dim() - attn_mask.dim()):
            attn_mask = attn_mask.unsqueeze(1)
        if attn_mask.dtype == torch.bool:
            attn_mask = ~attn_mask
    p, stream = drawn(dropout_p, rng, query)
    if scale is not None and not isinstance(scale, (int, float)):  # a factor of the queries, in any of the ways
        factors = numbers(per_model(scale, len(query), "scale"), query.dtype, query.device)
        query, scale = query * factors.view(-1, *(1,) * (query.dim() - 1)), 1.0
    return attend(query, key, value, attn_mask, is_causal, scale, p, stream)


scaled_dot_product_attention.own_numbers = frozenset(("dropout_p", "scale"))  # type: ignore[attr-defined]


def attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Maybe, is_causal: bool, scale: float | None, p: Maybe, rng: Maybe
) -> Tensor:
    """Compute `scaled_dot_product_attention` with a `mask` as in attention layers (True = ignore) that broadcasts to
    the scores."""
    if p is None or rng is None:
        if query.is_cuda:
            ways, inputs = attention_ways(is_causal, scale), (query, key, value, mask)
            return ways[fastest("attention of heads", ways, inputs, is_causal, scale)](*inputs)
        few = query.shape[1:].numel() <= FEW and not transforming()
        if few or query.shape[-2] * key.shape[-2] > SHORT:
            return _flash(query, key, value, mask, is_causal, scale)
    return _by_products(query, key, value, mask, is_causal, scale, p, rng)


def attention_ways(is_causal: bool, scale: float | None) -> dict[str, Way]:
    """Return the ways without dropout on a GPU, by name; each takes queries, keys, values, and the mask or None."""
    return {
        "products": lambda q, k, v, mask: _by_products(q, k, v, mask, is_causal, scale, None, None),
        "one call": lambda q, k, v, mask: _flash(q, k, v, mask, is_causal, scale),
    }


def _by_products(
    query: Tensor, key: Tensor, value: Tensor, mask: Maybe, is_causal: bool, scale: float | None, p: Maybe, rng: Maybe
) -> Tensor:
    if is_causal:
        size = (query.shape[-2], key.shape[-2])
        mask = torch.ones(size, dtype=torch.bool, device=query.device).triu(1)
    weights = attention_weights(query, key, mask, scale)
    if p is not None and rng is not None:
        weights = ops.dropout(computable(weights), p, rng).to(value.dtype)
    return ops.matmul(weights, value)


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None, scale: float | None = None) -> Tensor:
    """Compute softmax(q kᵀ · scale, masked): `[B, ..., L, E]` and `[B, ..., S, E]` to `[B, ..., L, S]`."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = ops.matmul(query * scale, key.transpose(-2, -1))
    if mask is not None:
        scores = scores.masked_fill(mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
    return scores.softmax(-1)


def _flash(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool, scale: float | None
) -> Tensor:
    """Call torch's kernels on `[B * ..., H, L, E]`, which compute every head of every sequence separately."""
    call = torch.nn.functional.scaled_dot_product_attention
    leading = query.shape[:-2]
    if query.dim() == 3:
        query, key, value = (x.unsqueeze(1) for x in (query, key, value))
        mask = mask if mask is None or mask.dim() < 3 else mask.unsqueeze(1)
    batch = query.shape[:-3]
    if mask is not None:
        mask = ~mask if mask.dtype == torch.bool else mask.to(query.dtype)
        per_model = _varies(mask, query.dim(), (0,))
        if not _varies(mask, query.dim(), range(query.dim() - 3)):
            mask = mask[(0,) * max(0, mask.dim() - 3)]
        elif per_model and not _varies(mask, query.dim(), range(1, query.dim() - 3)):
            each = [
                call(q.flatten(0, -4), k.flatten(0, -4), v.flatten(0, -4), m[(0,) * (m.dim() - 3)], scale=scale)
                for q, k, v, m in zip(query, key, value, mask, strict=True)
            ]
            return torch.stack(each).view(*leading, query.shape[-2], value.shape[-1])
        else:
            mask = mask.expand(*batch, *mask.shape[-3:]).flatten(0, -4)
    q, k, v = (x.flatten(0, -4) for x in (query, key, value))
    y = call(q, k, v, mask, is_causal=is_causal, scale=scale)
    return y.view(*leading, *y.shape[-2:])


def _varies(mask: Tensor, dims: int, along: Sequence[int] | range) -> bool:
    """Return True if a mask that broadcasts to `dims` dimensions differs along some of them."""
    offset = dims - mask.dim()
    return any(mask.shape[d - offset] > 1 and mask.stride(d - offset) != 0 for d in along if d >= offset)


def _grouped(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Repeat keys and values so that every head of the queries has its own (grouped-query attention)."""
    heads, theirs = query.shape[-3], (key.shape[-3], value.shape[-3])
    if query.dim() < 4 or any(heads % other for other in theirs):
        raise InvalidArgument(
            f"enable_gqa=True needs [B, ..., H, L, E] with a number of heads that those of key and value divide; got "
            f"{heads} and {theirs}"
        )
    key, value = (x.repeat_interleave(heads // x.shape[-3], -3) for x in (key, value))
    return query, key, value
