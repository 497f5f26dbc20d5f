# SPDX-License-Identifier: MIT
"""Functions of a user's code that wait for the next one, because both together are one pass: a sigmoid of half a tensor
before its product with the other half, a ReLU before a pooling; and products with factors that rows or columns share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .. import ops
from ..ops.device import on_cpu
from ..ops.memory_order import in_one_piece
from .forward_state import Alone
from .model_tensor import Deferred, Half, ModelTensor

FEWEST_NUMBERS = 4096
"""Numbers below which the calls of torch's functions cost less than those of the operator."""


_GATE = Alone(lambda x: torch.sigmoid(in_one_piece(x)))  # that only a product with the other half joins
_RELU = Alone(torch.relu)  # that only a pooling joins


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


def waiting_relu(x: Tensor) -> ModelTensor | None:
    """Defer the ReLU of images or lines `[B, N, C, *]`; None for tensors that this package's operators do not pool."""
    if x.dim() not in (4, 5) or not on_cpu(x) or x.dtype not in (torch.float32, torch.float64):
        return None
    return ModelTensor(None, Deferred(_RELU, x, x.shape))


def input_of_relu(waiting: Deferred | None) -> Tensor | None:
    """Return the input of a deferred ReLU, to compute it together with its successor; None if it is no such ReLU."""
    if waiting is None or waiting.layer is not _RELU or waiting.grad != torch.is_grad_enabled():
        return None
    waiting.taken = True
    return waiting.x


FEWEST_SCALED = 125_000
"""Numbers of a model below which torch's calls cost less than those of the operator, for four models."""


def scaled_product(a: Any, b: Any) -> Tensor | None:
    """Compute a * b `[B, *]`, if one of them is 1 where the other is not, and both have gradients; else None. torch's
    gradients take four passes."""
    if not isinstance(a, Tensor) or not isinstance(b, Tensor) or a.shape == b.shape:
        return None
    x, factors = (a, b) if a.numel() > b.numel() else (b, a)
    if x.numel() < FEWEST_SCALED * len(x) or not (x.requires_grad and factors.requires_grad):
        return None
    return ops.scaled(x, factors) if torch.is_grad_enabled() else None
