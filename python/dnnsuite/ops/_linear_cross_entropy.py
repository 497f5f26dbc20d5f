# SPDX-License-Identifier: MIT
"""Linear layer and cross-entropy in one operator, for vocabularies whose logits would take too much memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import InvalidArgument
from ._cross_entropy import cross_entropy
from ._linear import linear_composition, own_products
from .library import below_autograd, gradients_through, library, remember, tracing
from .shared import beside

_loss = library.cross_entropy.default
_loss_backward = library.cross_entropy_backward.default

CHUNK = 2**22
"""Logits in a chunk, 16 MiB: with fewer, the weight and its gradient are read and written too often."""


def chunk_rows(classes: int) -> int:
    """Return the number of rows of logits in a chunk."""
    return min(max(CHUNK // max(classes, 1) // 32 * 32, 64), 1024)


def _composition(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    ignore_index: int,
    label_smoothing: float,
    reduction: str,
) -> Tensor:
    logits = linear_composition(x, weight, bias)
    if logits.device.type == "cpu" and logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    return cross_entropy(logits, target, ignore_index, label_smoothing, reduction)


class _Chunked(torch.autograd.Function):
    """Function that computes the gradient in the forward pass, while the logits exist; the backward pass only scales
    it."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Tensor:
        x, weight, bias, target, ignore_index, label_smoothing, reduction = args
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        dx = torch.empty(x.shape, dtype=x.dtype) if needs_x else None
        dweight = torch.empty(weight.shape, dtype=x.dtype) if needs_weight else None
        dbias = torch.zeros(weight.shape[:2], dtype=x.dtype) if needs_bias else None
        counts = (target != ignore_index).sum(1).to(x.dtype)
        scale = 1 / counts if reduction == "mean" else torch.ones_like(counts)
        losses = x.new_empty(len(x))
        with below_autograd():
            for model in range(len(x)):
                parts = [None if t is None else t[model] for t in (dx, dweight, dbias)]
                own_bias = None if bias is None else bias[model]
                losses[model] = _of_model(
                    (x[model], weight[model], own_bias, target[model]),
                    parts,
                    scale[model : model + 1],
                    (ignore_index, label_smoothing, "sum"),
                )
        ctx.save_for_backward(x, weight, bias, target, dx, dweight, dbias)
        remember(ctx, args)
        return losses / counts if reduction == "mean" else losses

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            return gradients_through(_composition, ctx, (grad,))
        gradients = ctx.saved_tensors[4:]
        if not bool((grad == 1).all()):
            gradients = [None if g is None else g * beside(grad, g) for g in gradients]
        return (*gradients, None, None, None, None)


def _of_model(
    inputs: tuple[Any, ...], gradients: list[Tensor | None], scale: Tensor, options: tuple[Any, ...]
) -> Tensor:
    """Sum one model's losses; writes its gradients, except those that are None."""
    x, weight, bias, target = inputs
    dx, dweight, dbias = gradients
    total = x.new_zeros(())
    rows = chunk_rows(len(weight))
    logits = x.new_empty(1, min(rows, len(x)), len(weight))
    if dweight is not None and len(x) == 0:
        dweight.zero_()
    for first in range(0, len(x), rows):
        part = slice(first, min(first + rows, len(x)))
        z = logits[:, : part.stop - first]
        if bias is None:
            torch.mm(x[part], weight.t(), out=z[0])
        else:
            torch.addmm(bias, x[part], weight.t(), out=z[0])
        loss, log_sum = _loss(z, target[None, part], *options)
        total += loss.squeeze(0)
        if dx is None and dweight is None and dbias is None:
            continue
        dz = _loss_backward(scale, z, target[None, part], log_sum, *options)
        if dx is not None:
            torch.mm(dz[0], weight, out=dx[part])
        if dweight is not None:
            torch.addmm(dweight, dz[0].t(), x[part], beta=float(first > 0), out=dweight)
        if dbias is not None:
            dbias += dz.sum((0, 1))
    return total


def linear_cross_entropy(
    x: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """Compute cross_entropy(linear(x, weight, bias), target): x [B, R, I], weight [B, C, I] and target [B, R] give [B].

    On a CPU the logits of one model at a time are computed, `chunk_rows(C)` rows at a time, so that they are never all
    in memory. `reduction` is 'mean' or 'sum'.
    """
    models, _, inputs = weight.shape
    if x.dim() != 3 or x.shape[0] != models or x.shape[2] != inputs:
        raise InvalidArgument(
            f"linear_cross_entropy: x must be [{models}, R, {inputs}] as in weight {list(weight.shape)}, not "
            f"{list(x.shape)}"
        )
    if target.shape != x.shape[:2]:
        raise InvalidArgument(f"linear_cross_entropy: target must be {list(x.shape[:2])}, not {list(target.shape)}")
    if reduction not in ("mean", "sum"):
        raise InvalidArgument(f"linear_cross_entropy: reduction must be 'mean' or 'sum', not {reduction!r}")
    if tracing() or not own_products(x, weight, bias):
        return _composition(x, weight, bias, target, ignore_index, label_smoothing, reduction)
    loss: Tensor = _Chunked.apply(x, weight, bias, target, ignore_index, label_smoothing, reduction)
    return loss
