# SPDX-License-Identifier: MIT
"""Attention masks of an array: shapes, combination, and detection of the causal mask."""

from __future__ import annotations

import torch

from ..errors import InvalidArgument


def shape_for_heads(mask: torch.Tensor, B: int, sequences: int, heads: int) -> torch.Tensor:
    """Reshape a mask `[L, S]`, `[B, L, S]` or `[B, N * H, L, S]` so that it broadcasts to `[B, N, H, L, S]`."""
    if mask.dim() == 2:
        return mask[None, None, None]
    if mask.dim() == 3 and mask.shape[0] == B:
        return mask[:, None, None]
    if mask.dim() == 4 and mask.shape[:2] == (B, sequences * heads):
        return mask.unflatten(1, (sequences, heads))
    raise InvalidArgument(
        f"attn_mask of B={B} models is [L, S] (for all), [{B}, L, S] or [{B}, N * H = {sequences * heads}, L, S]; got "
        f"{list(mask.shape)}. A mask [N * H, L, S] that all models share is dnnsuite.stack(mask, B={B})"
    )


def joined_mask(
    mask: torch.Tensor | None, padding: torch.Tensor | None, extra: int, dtype: torch.dtype
) -> torch.Tensor | None:
    """Combine two masks, with `extra` keys at the end that are never ignored; boolean (True = ignore) if both are."""
    found = [m if extra == 0 else torch.nn.functional.pad(m, (0, extra)) for m in (mask, padding) if m is not None]
    if not found:
        return None
    if all(m.dtype == torch.bool for m in found):
        return found[0] if len(found) == 1 else found[0] | found[1]
    added = [additive(m, dtype) for m in found]
    return added[0] if len(added) == 1 else added[0] + added[1]


def additive(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Convert a boolean mask (True = ignore) to one that is added to the scores; cast a float mask to `dtype`."""
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask, float("-inf"))


def is_causal_mask(mask: torch.Tensor | None) -> bool:
    """Return True if a mask for all models hides exactly the later positions; False where a look would wait for a
    GPU."""
    if mask is None or mask.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    if mask.dim() == 3 and mask.stride(0) == 0:
        mask = mask[0]
    if mask.dim() != 2 or mask.shape[0] != mask.shape[1] or mask.requires_grad:
        return False
    later = torch.ones(mask.shape, dtype=torch.bool).triu(1)
    return torch.equal(mask, later if mask.dtype == torch.bool else additive(later, mask.dtype))
