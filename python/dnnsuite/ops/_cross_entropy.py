# SPDX-License-Identifier: MIT
"""Cross-entropy with one loss per model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .library import differentiable, fake, fakes_like, library, tracing

_forward = library.cross_entropy.default
_cross_entropy_backward = library.cross_entropy_backward.default


def _accumulated(logits: Tensor) -> torch.dtype:
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def _new_losses(logits: Tensor, target: Tensor, reduction: str) -> tuple[Tensor, Tensor]:
    shape = target.shape if reduction == "none" else target.shape[:1]
    dtype = _accumulated(logits)
    return logits.new_empty(shape, dtype=dtype), logits.new_empty(target.shape, dtype=dtype)


fake("cross_entropy", _new_losses)
fakes_like("logits", "cross_entropy_backward")


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    logits, target, *ctx.options = inputs
    _, log_sum = output
    ctx.mark_non_differentiable(log_sum)
    ctx.save_for_backward(logits, target, log_sum)


def _backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Any, ...]:
    logits, target, log_sum = ctx.saved_tensors
    return _cross_entropy_backward(grad, logits, target, log_sum, *ctx.options), None, None, None, None


def _composition(logits: Tensor, target: Tensor, ignore_index: int, label_smoothing: float, reduction: str) -> Tensor:
    rows = torch.nn.functional.cross_entropy(
        logits.to(_accumulated(logits)).flatten(0, 1),
        target.flatten(),
        ignore_index=ignore_index,
        reduction="none",
        label_smoothing=label_smoothing,
    ).view(target.shape)
    if reduction == "none":
        return rows
    return rows.sum(1) / (target != ignore_index).sum(1) if reduction == "mean" else rows.sum(1)


_eager = differentiable(_forward, _setup, _backward, _composition)


def cross_entropy(
    logits: Tensor, target: Tensor, ignore_index: int = -100, label_smoothing: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """Compute each model's loss from logits [B, R, C] and targets int64 [B, R]: [B], or [B, R] with reduction 'none'.

    'mean' averages over the rows of the model whose target is not `ignore_index`; it is NaN if there is none, as in
    torch. On a CPU a target outside [0, C) is an error. The loss of 16-bit logits is float32.
    """
    call = _forward if tracing() else _eager
    loss: Tensor = call(logits, target, ignore_index, label_smoothing, reduction)[0]
    return loss
