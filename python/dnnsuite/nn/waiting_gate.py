# SPDX-License-Identifier: MIT
"""Deferred sigmoid of the second half of a tensor: its product with the first half is one pass over both halves, whose
gradient lies in one piece."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .. import ops
from ..ops.device import on_cpu
from ..ops.memory_order import in_one_piece
from .model_tensor import Deferred, Half, ModelTensor

FEWEST_NUMBERS = 4096
"""Numbers below which the calls of torch's functions cost less than those of the operator."""


class _Gate:
    """Layer of a `Deferred` that only a product with the other half joins."""

    activations: frozenset[str] = frozenset()
    adds_residual = False

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(in_one_piece(x))

    repeated = forward

    def before_maximum(self, x: Tensor) -> frozenset[str]:
        return frozenset()


_GATE = _Gate()


def mark_halves(whole: Tensor, parts: Sequence[ModelTensor], dim: int) -> None:
    """Note on the `parts` of `whole` `[B, *]`, cut along `dim`, that they are its two halves, if they are."""
    if len(parts) != 2 or whole.numel() < FEWEST_NUMBERS or parts[0].shape != parts[1].shape:
        return
    if not on_cpu(whole) or whole.dtype not in (torch.float32, torch.float64):
        return
    for place, part in enumerate(parts):
        part.half_of = Half(whole, dim, place, part.value)


def waiting_gate(x: ModelTensor) -> ModelTensor | None:
    """Defer the sigmoid of x, if it is the second half of a tensor; None for others."""
    half = x.half_of
    if half is None or half.place != 1 or x.value is not half.value:
        return None
    gate = ModelTensor(None, Deferred(_GATE, half.value, half.value.shape))
    gate.half_of = half
    return gate


def gated_half(first: ModelTensor, gate: ModelTensor) -> Tensor | None:
    """Compute the product of `first` and a deferred sigmoid, if they are of the halves of one tensor; else None."""
    half, other, waiting = first.half_of, gate.half_of, gate.deferred
    if half is None or other is None or waiting is None or waiting.layer is not _GATE:
        return None
    if half.place != 0 or half.whole is not other.whole or half.dim != other.dim:
        return None
    if waiting.grad != torch.is_grad_enabled() or first.value is not half.value or _watched(half, other):
        return None
    y = ops.glu(half.whole, half.dim)
    waiting.taken = y is not None
    return y


def _watched(*halves: Half) -> bool:
    """Return True if gradients must go through the halves, or do not go through all of them to the whole."""
    if not torch.is_grad_enabled():
        return False
    return any(
        half.value.requires_grad != half.whole.requires_grad or half.value.retains_grad or half.value._backward_hooks
        for half in halves
    )
