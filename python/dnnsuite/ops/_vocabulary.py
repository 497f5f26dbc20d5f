# SPDX-License-Identifier: MIT
"""Tables of vocabularies, and losses over them: embeddings, sums and means of bags of them, cross-entropy, and a linear
layer with its cross-entropy.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import InvalidArgument
from ._linear import linear_composition, own_products
from .library import (
    below_autograd,
    differentiable,
    eager,
    fake,
    fakes_like,
    gradients_through,
    library,
    remember,
    tracing,
)
from .shared import beside, is_frozen, is_shared, spread

fake("embedding", lambda weight, indices: weight.new_empty((*indices.shape, weight.shape[2])))
fake("embedding_backward", lambda grad, vocabulary: grad.new_empty(grad.shape[0], vocabulary, grad.shape[-1]))


def _embedding_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    weight, indices, padding_idx = inputs
    ctx.vocabulary, ctx.padding_idx = weight.shape[1], padding_idx
    ctx.save_for_backward(indices)


def _embedding_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    (indices,) = ctx.saved_tensors
    return library.embedding_backward.default(grad, indices, ctx.vocabulary, ctx.padding_idx), None, None


def _embedding_composition(weight: Tensor, indices: Tensor, padding_idx: int) -> Tensor:
    models = beside(torch.arange(len(weight), device=weight.device), indices)
    rows = weight[models, indices]
    return torch.where((indices == padding_idx).unsqueeze(-1), rows.detach(), rows) if padding_idx >= 0 else rows


_embedding = differentiable(library.embedding.default, _embedding_setup, _embedding_backward, _embedding_composition)


def embedding(weight: Tensor, indices: Tensor, padding_idx: int = -1) -> Tensor:
    """Look up rows of each model's table: weight [B, V, D] and indices int64 [B, ...] give [B, ..., D].

    Indices that all models share may be an expanded tensor (stride 0 in dimension 0), which is not copied. Row
    `padding_idx` gets no gradient; -1 means no such row. On a CPU an index outside [0, V) is an error.
    """
    if is_frozen(weight):
        B, wide = len(weight), weight[:1]
        if is_shared(indices):
            return spread(embedding(wide, indices[:1], padding_idx), B)
        return embedding(wide, indices.reshape(1, -1), padding_idx).view(*indices.shape, -1)
    return _embedding(weight, indices, padding_idx)


_SUM, _MEAN = 0, 1  # as torch counts the modes


def _bags(weight: Tensor, indices: Tensor, offsets: Tensor, mean: bool) -> Tensor:
    """Call torch's kernel for each model: one for all would have bits that depend on B."""
    each = zip(weight.unbind(0), indices.unbind(0), offsets.unbind(0), strict=True)
    mode = _MEAN if mean else _SUM
    return torch.stack([torch.embedding_bag(table, own, begins, False, mode)[0] for table, own, begins in each])


def _bag_of(offsets: Tensor, count: int) -> Tensor:
    """Number the bag of each of `count` indices, `[B, count]`."""
    begun = offsets.new_zeros(len(offsets), count + 1).scatter_add_(1, offsets, torch.ones_like(offsets))
    return begun.cumsum(1)[:, :count] - 1


def _sizes(offsets: Tensor, count: int) -> Tensor:
    """Count the rows of each bag, at least 1."""
    ends = torch.cat([offsets[:, 1:], offsets.new_full((len(offsets), 1), count)], 1)
    return (ends - offsets).clamp_(min=1)


def _embedding_bag_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    weight, indices, offsets, ctx.mean = inputs
    ctx.vocabulary = weight.shape[1]
    ctx.save_for_backward(indices, offsets)


def _embedding_bag_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    indices, offsets = ctx.saved_tensors
    count, known = indices.shape[1], offsets[:1] if is_shared(offsets) else offsets
    if ctx.mean:
        grad = grad / _sizes(known, count).unsqueeze(-1).to(grad.dtype)
    bag = _bag_of(known, count).expand(len(grad), count)
    rows = library.embedding.default(grad.contiguous(), bag, -1)
    return library.embedding_backward.default(rows, indices, ctx.vocabulary, -1), None, None, None


def _embedding_bag_composition(weight: Tensor, indices: Tensor, offsets: Tensor, mean: bool) -> Tensor:
    models = torch.arange(len(weight), device=weight.device).unsqueeze(1)
    rows, bag = weight[models, indices], _bag_of(offsets, indices.shape[1])
    empty = weight.new_zeros(*offsets.shape, weight.shape[2])
    found = empty.index_put((models, bag), rows, accumulate=True)
    return found / _sizes(offsets, indices.shape[1]).unsqueeze(-1).to(found.dtype) if mean else found


_eager_bags = eager(_bags, _embedding_bag_setup, _embedding_bag_backward, _embedding_bag_composition)


def embedding_bags(weight: Tensor, indices: Tensor, offsets: Tensor, mean: bool) -> Tensor:
    """Sum, or average, bags of rows of each model's table, on a CPU; the result is [B, N, D].

    It exists because torch's own gradient sorts the indices of each model and would copy the gradients of the tables
    together. It cannot be used under `torch.compile`.

    Args:
        weight: the tables, [B, V, D].
        indices: rows, int64 [B, M].
        offsets: position in `indices` where each bag begins, [B, N].
        mean: True averages the rows of a bag.
    """
    return _eager_bags(weight, indices, offsets, mean)


_loss, _loss_backward = library.cross_entropy.default, library.cross_entropy_backward.default


def _accumulated(logits: Tensor) -> torch.dtype:
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def _new_losses(logits: Tensor, target: Tensor, reduction: str) -> tuple[Tensor, Tensor]:
    shape = target.shape if reduction == "none" else target.shape[:1]
    dtype = _accumulated(logits)
    return logits.new_empty(shape, dtype=dtype), logits.new_empty(target.shape, dtype=dtype)


fake("cross_entropy", _new_losses)
fakes_like("logits", "cross_entropy_backward")


def _cross_entropy_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    logits, target, *ctx.options = inputs
    _, log_sum = output
    ctx.mark_non_differentiable(log_sum)
    ctx.save_for_backward(logits, target, log_sum)


def _cross_entropy_backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Any, ...]:
    logits, target, log_sum = ctx.saved_tensors
    return _loss_backward(grad, logits, target, log_sum, *ctx.options), None, None, None, None


def _cross_entropy_composition(
    logits: Tensor, target: Tensor, ignore_index: int, label_smoothing: float, reduction: str
) -> Tensor:
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


_cross_entropy = differentiable(_loss, _cross_entropy_setup, _cross_entropy_backward, _cross_entropy_composition)


def cross_entropy(
    logits: Tensor, target: Tensor, ignore_index: int = -100, label_smoothing: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """Compute each model's loss from logits [B, R, C] and targets int64 [B, R]: [B], or [B, R] with reduction 'none'.

    'mean' averages over the rows of the model whose target is not `ignore_index`; it is NaN if there is none, as in
    torch. On a CPU a target outside [0, C) is an error. The loss of 16-bit logits is float32.
    """
    return _cross_entropy(logits, target, ignore_index, label_smoothing, reduction)[0]


CHUNK = 2**22
"""Logits in a chunk, 16 MiB: with fewer, the weight and its gradient are read and written too often."""


def chunk_rows(classes: int) -> int:
    """Return the number of rows of logits in a chunk."""
    return min(max(CHUNK // max(classes, 1) // 32 * 32, 64), 1024)


def _linear_composition(x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    logits = linear_composition(x, weight, bias)
    if logits.device.type == "cpu" and logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    return cross_entropy(logits, *rest)


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
            return gradients_through(_linear_composition, ctx, (grad,))
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
    call = _linear_composition if tracing() or not own_products(x, weight, bias) else _Chunked.apply
    return call(x, weight, bias, target, ignore_index, label_smoothing, reduction)
