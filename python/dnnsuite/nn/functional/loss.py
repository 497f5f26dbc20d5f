# SPDX-License-Identifier: MIT
"""Classification losses. B is the size of dimension 0 of the input, so they work for an array and for any part of it.

`sample_weight` `[B, N]`, which torch does not have, is the weight of each sample of each model. With it, one array can
have batches of different sizes: pad the shorter ones with samples of weight 0 (or False).
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor
from torch.nn import functional as F

from ... import ops
from ...errors import InvalidArgument
from .._models import computable
from .._reduction import align, each_in_one, in_whole_vectors, legacy, model_sum, reduce, reduced
from ._samples import takes_own_numbers

IGNORED = -100


@takes_own_numbers("label_smoothing")
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = IGNORED,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    *,
    sample_weight: Tensor | None = None,
) -> Tensor:
    """Compute the cross-entropy of logits for each model.

    Args:
        input: logits `[B, N, C]`, or `[B, N, C, d1, ...]`.
        target: class indices `[B, N]` or class probabilities `[B, N, C]`, with `d1, ...` at the end if the input has
            them.
        weight: weight of each class, `[C]` for all models or `[B, C]`.
        ignore_index: class index that does not count. A model with no other target gets NaN, as in torch.
        label_smoothing: one number, or one per model `[B]`.
        sample_weight: weight of each sample, `[B, N]`.

    Returns:
        The mean of each model over its own samples, `[B]`; with `reduction="none"` `[B, N]`.

    Raises:
        InvalidArgument: the shapes of input, target and weights do not fit together.

    >>> import torch
    >>> from dnnsuite.nn import functional
    >>> functional.cross_entropy(torch.randn(3, 8, 10), torch.zeros(3, 8, dtype=torch.long)).shape
    torch.Size([3])
    """
    reduction = legacy(size_average, reduce, reduction)
    logits, target, shape = _class_last(input, target)
    soft = target.is_floating_point()
    if weight is None and not soft and (sample_weight is None or sample_weight.dtype == torch.bool):
        if sample_weight is not None:
            target = target.masked_fill(~_rows(sample_weight, shape), ignore_index)
        loss = ops.cross_entropy(computable(logits), target, ignore_index, label_smoothing, reduction)
        return as_torch(loss.view(shape) if reduction == "none" else loss, input)
    log_p = torch.log_softmax(computable(logits), -1)
    if soft:
        rows = _soft_rows(log_p, target, weight, label_smoothing)
        counted = torch.ones_like(rows)
    else:
        rows, counted = _hard_rows(log_p, target, weight, ignore_index, label_smoothing)
    return as_torch(_reduced_rows(rows, counted, reduction, sample_weight, shape), input)


def as_torch(loss: Tensor, input: Tensor) -> Tensor:
    """Convert the loss to the dtype of torch's: the input's, or float32 under autocast."""
    if loss.dtype == input.dtype or torch.is_autocast_enabled(input.device.type):
        return loss
    return loss.to(input.dtype)


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = IGNORED,
    reduce: bool | None = None,
    reduction: str = "mean",
    *,
    sample_weight: Tensor | None = None,
) -> Tensor:
    """Negative log-likelihood of target classes `[B, N, ...]` under log-probabilities `[B, N, C, ...]`; see
    `cross_entropy`."""
    reduction = legacy(size_average, reduce, reduction)
    log_p, target, shape = _class_last(input, target)
    rows, counted = _hard_rows(computable(log_p), target, weight, ignore_index, 0.0)
    return as_torch(_reduced_rows(rows, counted, reduction, sample_weight, shape), input)


def _class_last(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor, torch.Size]:
    """Return `[B, R, C]`, the target `[B, R]` or `[B, R, C]`, and the shape of the losses before they were flattened to
    R rows."""
    if not isinstance(target, Tensor):
        raise InvalidArgument(f"the target is a {type(target).__name__}: torch.as_tensor makes a tensor of it")
    if input.dim() < 2:
        raise InvalidArgument(f"the input of B models is [B, N, C] or [B, C], got {list(input.shape)}")
    soft = target.is_floating_point()
    if soft and target.shape != input.shape:
        raise InvalidArgument(
            f"class probabilities must have the shape of the input {list(input.shape)}, not {list(target.shape)}; "
            "class indices are whole numbers: target.long()"
        )
    if not soft and target.dtype not in (torch.int64, torch.uint8):
        raise InvalidArgument(f"class indices are torch.int64, not {target.dtype}: target.long()")
    if input.dim() > 3:  # as the operator wants it: [B, N, C, *] -> [B, N, *, C]
        input, target = input.movedim(2, -1), target.movedim(2, -1) if soft else target
    shape = input.shape[:-1]
    if not soft and target.shape != shape:
        raise InvalidArgument(
            f"an input of {list(input.shape)} (class last) needs class indices {list(shape)}; got "
            f"{list(target.shape)}; what all models share is dnnsuite.stack(target, B={len(input)})"
        )
    if input.dim() == 2 and not soft and len(input) > 1 and input.requires_grad:
        warnings.warn(
            f"each of {len(input)} models has a loss of one sample without a batch dimension; if these are "
            f"{len(input)} samples for all models, give the array dnnsuite.stack(x, B={len(input)})",
            stacklevel=1,  # a line of the caller's would be noted in a variable of the caller's module
        )
    if input.dim() == 3:  # rows already: a view would have a gradient of its own
        return input, target, shape
    rows, classes = (len(input), shape[1:].numel()), input.shape[-1]
    return (input.reshape(*rows, classes), target.reshape(*rows, classes) if soft else target.reshape(rows), shape)


def _rows(sample_weight: Tensor, shape: torch.Size) -> Tensor:
    """Expand a weight of the losses' first dimensions to `[B, R]`."""
    if sample_weight.shape != shape[: sample_weight.dim()]:
        raise InvalidArgument(
            f"sample_weight {list(sample_weight.shape)} must be the first dimensions of the losses {list(shape)}"
        )
    weight = sample_weight.view(*sample_weight.shape, *[1] * (len(shape) - sample_weight.dim()))
    return weight.expand(shape).reshape(shape[0], shape[1:].numel())


def _class_weight(weight: Tensor, log_p: Tensor) -> Tensor:
    """Reshape a class weight `[C]` or `[B, C]` to `[B, 1, C]`."""
    models, _, classes = log_p.shape
    weight = each_in_one(weight, log_p)
    if weight.shape not in ((classes,), (models, classes)):
        raise InvalidArgument(f"weight must be {[models, classes]} or {[classes]}, not {list(weight.shape)}")
    return weight.to(log_p.dtype).expand(models, classes).unsqueeze(1)


def _soft_rows(log_p: Tensor, target: Tensor, weight: Tensor | None, smoothing: float) -> Tensor:
    target = target.to(log_p.dtype)
    if smoothing > 0:
        target = target * (1 - smoothing) + smoothing / log_p.shape[-1]
    terms = target * log_p if weight is None else target * log_p * _class_weight(weight, log_p)
    return -terms.sum(-1)


def _hard_rows(
    log_p: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Return the loss of each row, and its weight in a mean."""
    ignored = target == ignore_index
    index = target.masked_fill(ignored, 0).unsqueeze(-1)
    rows = -log_p.gather(-1, index).squeeze(-1)
    counted = torch.ones_like(rows)
    if weight is not None:
        weight = _class_weight(weight, log_p)
        counted = weight.expand(-1, target.shape[1], -1).gather(-1, index).squeeze(-1)
        rows = rows * counted
    if smoothing > 0:
        even = -(log_p if weight is None else log_p * weight).sum(-1)
        rows = rows * (1 - smoothing) + even * (smoothing / log_p.shape[-1])
    return rows.masked_fill(ignored, 0), counted.masked_fill(ignored, 0)


def _reduced_rows(
    rows: Tensor, counted: Tensor, reduction: str, sample_weight: Tensor | None, shape: torch.Size
) -> Tensor:
    if sample_weight is not None:
        own = _rows(sample_weight, shape)
        rows = torch.where(own != 0, rows * own.to(rows.dtype), 0)
        counted = counted * own.to(counted.dtype)
    if reduction == "none":
        return rows.view(shape)
    return model_sum(rows) / model_sum(counted) if reduction == "mean" else model_sum(rows)


def _check_shapes(input: Tensor, target: Tensor) -> None:
    if input.shape != target.shape:
        raise InvalidArgument(
            f"the target {list(target.shape)} must have the shape of the input {list(input.shape)}; what all models "
            f"share is dnnsuite.stack(target, B={len(input)})"
        )


@reduced()
def binary_cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Binary cross-entropy of probabilities `[B, N, ...]`; `weight` is `[B, ...]`, and otherwise as in torch."""
    _check_shapes(input, target)
    values = in_whole_vectors(lambda x, y: F.binary_cross_entropy(x, y, reduction="none"), (input, 0.5), (target, 0.5))
    return values if weight is None else values * align(weight, input)


@reduced()
def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None, pos_weight: Tensor | None = None
) -> Tensor:
    """Binary cross-entropy of logits `[B, N, ...]`; `weight` and `pos_weight` are `[B, ...]`."""
    _check_shapes(input, target)
    if pos_weight is None:
        values = in_whole_vectors(
            lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="none"), (input, 0.0), (target, 0.0)
        )
    else:
        values = in_whole_vectors(
            lambda x, y, p: F.binary_cross_entropy_with_logits(x, y, pos_weight=p, reduction="none"),
            (input, 0.0),
            (target, 0.0),
            (align(pos_weight, target), 1.0),
        )
    return values if weight is None else values * align(weight, input)


@takes_own_numbers("margin", "p")
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    *,
    sample_weight: Tensor | None = None,
) -> Tensor:
    """Multi-class hinge loss of scores `[B, N, C]` and classes `[B, N]`; `weight` is `[B, C]` or `[C]`."""
    reduction = legacy(size_average, reduce, reduction)
    if p not in (1, 2):
        raise InvalidArgument(f"multi_margin_loss: p must be 1 or 2, got {p!r}")
    logits, target, shape = _class_last(input, target)
    scores, index = computable(logits), target.unsqueeze(-1)
    hinge = (margin - scores.gather(-1, index) + scores).clamp(min=0) ** p
    if weight is not None:
        hinge = hinge * _class_weight(weight, scores).expand_as(scores).gather(-1, index)
    hinge = hinge.scatter(-1, index, 0.0)
    rows = (hinge.sum(-1) / scores.shape[-1]).view(shape)
    return as_torch(_reduce(rows, reduction, sample_weight), input)


@reduced()
def multilabel_margin_loss(input: Tensor, target: Tensor) -> Tensor:
    """Multi-label margin loss of `[B, N, C]` and lists of classes `[B, N, C]`, each ending at its first -1."""
    rows = F.multilabel_margin_loss(input.flatten(0, -2), target.expand_as(input).flatten(0, -2), reduction="none")
    return rows.view(input.shape[:-1])


@reduced()
def multilabel_soft_margin_loss(input: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean over the classes of the binary cross-entropies of scores `[B, N, C]`; `weight` `[B, ...]` is broadcast."""
    values = in_whole_vectors(
        lambda x, y: -(y * F.logsigmoid(x) + (1 - y) * F.logsigmoid(-x)), (input, 0.0), (target, 0.0)
    )
    values = values if weight is None else values * align(weight, values)
    return values.sum(-1) / values.shape[-1]


_reduce = reduce  # torch calls one of the arguments `reduce`
