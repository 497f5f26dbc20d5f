# SPDX-License-Identifier: MIT
"""Reduce losses per model: sum or mean of each, with per-sample weights for models whose batches differ."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .._torch import transforming
from ..errors import InvalidArgument
from ..ops.device import on_cpu

VECTORS = 64
"""Number of elements that is a multiple of every vector width and of torch's unrolled loops."""
PIECE = 4096
LONG = 32768
"""From this many elements on, torch may divide the sum of one tensor among threads."""


def check_reduction(reduction: str, *more: str) -> None:
    """Raise InvalidArgument for an unknown reduction."""
    if reduction not in ("mean", "sum", "none", *more):
        names = ", ".join(repr(name) for name in ("mean", "sum", *more))
        raise InvalidArgument(f"reduction must be {names} or 'none', got {reduction!r}")


def legacy(size_average: bool | None, reduce: bool | None, reduction: str, *more: str) -> str:
    """Return `reduction`, or its equivalent of torch's two old arguments; raises InvalidArgument if it is unknown."""
    if size_average is not None or reduce is not None:
        reduction = torch.nn.MSELoss(size_average, reduce).reduction  # with torch's warning
    check_reduction(reduction, *more)
    return reduction


def reduced(*more: str) -> Callable[[Callable[..., Any]], Callable[..., Tensor]]:
    """Make the loss of B models that torch's function of the same name is for one, of a function that gives the losses
    of elements `[B, N, ...]`, or a pair of them and of weights beside them.

    The loss takes torch's arguments, and `sample_weight` as in `reduce`. The function takes those of them that do not
    say how to reduce. `more` are reductions beside mean and sum.
    """

    def decorate(elements: Callable[..., Any]) -> Callable[..., Tensor]:
        torchs = inspect.signature(getattr(F, elements.__name__))
        own = inspect.Parameter("sample_weight", inspect.Parameter.KEYWORD_ONLY, default=None)
        names = [p.name for p in torchs.parameters.values() if p.kind is not p.KEYWORD_ONLY]
        required = [p.name for p in torchs.parameters.values() if p.default is p.empty]

        @functools.wraps(elements)
        def loss(*arguments: Any, sample_weight: Tensor | None = None, **keywords: Any) -> Tensor:
            given = dict(zip(names, arguments, strict=False))
            if len(arguments) > len(names) or not given.keys().isdisjoint(keywords):
                torchs.bind(*arguments, **keywords)  # raises Python's own error
            given |= keywords
            old = given.pop("size_average", None), given.pop("reduce", None)
            reduction = legacy(*old, given.pop("reduction", "mean"), *more)
            check_models({name: given[name] for name in required if name in given})
            values = elements(**given)
            if isinstance(values, tuple):
                values, weight = values
                sample_weight = _product(weight, sample_weight)
            return reduce(values, reduction, sample_weight)

        loss.__signature__ = torchs.replace(parameters=[*torchs.parameters.values(), own])  # type: ignore[attr-defined]
        return loss

    return decorate


def check_models(given: Mapping[str, Any]) -> None:
    """Raise InvalidArgument for a tensor whose first dimension is not the models' of the first one, by name."""
    tensors = {name: x for name, x in given.items() if isinstance(x, Tensor) and x.dim() > 0}
    first = next(iter(tensors.values()), None)
    for name, x in tensors.items():
        if first is not None and len(first) > 1 and len(x) not in (1, len(first)):
            raise InvalidArgument(
                f"{name} {list(x.shape)} beside {list(first.shape)} of {len(first)} models: what all models share is "
                f"dnnsuite.stack({name}, B={len(first)})"
            )


def _product(weight: Tensor | None, sample_weight: Tensor | None) -> Tensor | None:
    """Combine torch's `weight` of elements with the weight of samples."""
    if weight is None or sample_weight is None:
        return sample_weight if weight is None else weight
    missing = weight.dim() - sample_weight.dim()
    return weight * sample_weight.view(*sample_weight.shape, *[1] * missing)


def align(x: Any, like: Tensor) -> Tensor:
    """Reshape x [B, ...] to as many dimensions as `like`, so that the dimensions after the first broadcast as in one
    model. A list has the tensor or number of each model."""
    x = each_in_one(x, like)
    missing = like.dim() - x.dim()
    if missing > 0 and len(x) not in (1, len(like)):
        raise InvalidArgument(
            f"{list(x.shape)} beside {list(like.shape)} of {len(like)} models: what all models share is "
            f"dnnsuite.stack(..., B={len(like)})"
        )
    return x if missing <= 0 else x.view(x.shape[:1] + (1,) * missing + x.shape[1:])


def each_in_one(value: Any, like: Tensor) -> Tensor:
    """Stack a weight that is given as a list, with a tensor or a number for each model."""
    if isinstance(value, Tensor):
        return value
    found = torch.stack([_like(one, like) for one in value])
    if len(found) != len(like):
        raise InvalidArgument(f"a list of {len(found)} weights for {len(like)} models: give one, or one per model")
    return found


def _like(weight: Any, like: Tensor) -> Tensor:
    if isinstance(weight, (int, float)):
        return like.new_full((), weight)  # no copy from the host, which no CUDA graph may record
    return torch.as_tensor(weight, dtype=like.dtype, device=like.device)


def in_whole_vectors(function: Callable[..., Tensor], *inputs: tuple[Tensor, float]) -> Tensor:
    """Apply an element-wise function to tensors [B, ...], each given with a harmless value for padding.

    On a CPU torch computes exp and log of the elements after the last whole vector by other code, with other bits, and
    these elements depend on B. So each model's elements are padded to whole vectors.
    """
    shape = inputs[0][0].shape
    if any(x.shape != shape for x, _ in inputs):
        shape = torch.broadcast_shapes(*(x.shape for x, _ in inputs))
    elements = shape[1:].numel()
    if elements % VECTORS == 0 or not on_cpu(inputs[0][0]):
        return function(*(x for x, _ in inputs))
    flat = [
        torch.nn.functional.pad(x.expand(shape).reshape(shape[0], elements), (0, -elements % VECTORS), value=fill)
        for x, fill in inputs
    ]
    return function(*flat)[:, :elements].reshape(shape)


def model_sum(x: Tensor) -> Tensor:
    """Sum each model's elements, [B, ...] to [B], in an order that depends on the shape of one model only."""
    flat = x.unsqueeze(-1) if x.dim() == 1 else x.flatten(1)
    elements = flat.shape[1]
    if elements < LONG:
        return flat.sum(1)
    if not transforming():
        return _LongSum.apply(flat)
    return _in_pieces(flat)


def _in_pieces(flat: Tensor) -> Tensor:
    whole = flat.shape[1] // PIECE * PIECE
    total = flat[:, :whole].unflatten(1, (-1, PIECE)).sum(2).sum(1)
    return total if whole == flat.shape[1] else total + flat[:, whole:].sum(1)


class _LongSum(torch.autograd.Function):
    """Sum by `_in_pieces`, with one expanded view as the gradient; autograd would write one per slice and add them
    up."""

    @staticmethod
    def forward(ctx: Any, flat: Tensor) -> Tensor:
        ctx.columns = flat.shape[1]
        return _in_pieces(flat)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.unsqueeze(1).expand(-1, ctx.columns)


def reduce(values: Tensor, reduction: str, sample_weight: Tensor | None = None) -> Tensor:
    """Reduce losses of elements [B, N, ...] to [B]; 'none' returns them unchanged, 'batchmean' divides by N.

    Args:
        sample_weight: `[B, N]` or `[B, N, ...]`, bool or floating: weight of each sample. Samples of weight 0 may hold
            anything, NaN too, so they pad a smaller batch.
    """
    by_samples = reduction == "batchmean"
    if sample_weight is None:
        if reduction == "none":
            return values
        total = model_sum(values)
        if reduction == "sum":
            return total
        count = values.shape[1:2].numel() if by_samples else values.shape[1:].numel()
        return total / count
    if sample_weight.shape != values.shape[: sample_weight.dim()]:
        raise InvalidArgument(
            f"sample_weight {list(sample_weight.shape)} must be the first dimensions of the losses "
            f"{list(values.shape)}: one weight for each sample of each model"
        )
    weight = sample_weight.view(*sample_weight.shape, *[1] * (values.dim() - sample_weight.dim()))
    values = torch.where(weight != 0, values * weight.to(values.dtype), 0)
    if reduction == "none":
        return values
    total = model_sum(values)
    if reduction == "sum":
        return total
    weight = weight.to(values.dtype)
    return total / model_sum(weight if by_samples else weight.expand_as(values))
