# SPDX-License-Identifier: MIT
"""Linear and bilinear layers and embedding tables as functions; linear layers before a cross-entropy."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ... import ops
from ...errors import InvalidArgument
from ...ops.device import on_cpu
from .._models import computable
from ._samples import takes_own_numbers
from .loss import as_torch, cross_entropy
from .mean import mean


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None, *, activation: str = "none") -> Tensor:
    """Apply weights `[B, out_features, in_features]` and biases `[B, out_features]` to `[B, *, in_features]`.

    The argument `activation`, which torch's function does not have, is 'none', 'relu' or 'gelu'; it is computed
    together with the product.
    """
    return ops.linear(input, weight, bias, activation)


@takes_own_numbers("label_smoothing")
def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
    sample_weight: Tensor | None = None,
) -> Tensor:
    """Compute cross_entropy(linear(input, linear_weight)) for `[B, N, in_features]` and weights `[B, C, in_features]`.

    With class indices and 'mean' or 'sum', the logits are never stored as a whole, whatever `options` says. They are
    stored for class weights, class probabilities, weights `[B, C, d1, ..., in_features]` or 'none'. `sample_weight` is
    explained in `functional.loss`.
    """
    ignored = -100 if ignore_index is None else ignore_index
    plain = weight is None and not target.is_floating_point() and linear_weight.dim() == input.dim() == 3
    if sample_weight is not None and sample_weight.dtype == torch.bool and plain:
        target, sample_weight = target.masked_fill(~sample_weight, ignored), None
    if plain and reduction in ("mean", "sum") and sample_weight is None:
        loss = ops.linear_cross_entropy(input, linear_weight, target, linear_bias, ignored, label_smoothing, reduction)
        return as_torch(loss, input)
    models, classes, *more, inputs = linear_weight.shape
    if input.dim() not in (2, 3) or len(input) != models:
        raise InvalidArgument(f"the input of {models} models must be [{models}, N, {inputs}], not {list(input.shape)}")
    flat_bias = None if linear_bias is None else linear_bias.flatten(1)
    logits = ops.linear(input, linear_weight.flatten(1, -2), flat_bias)
    logits = logits.unflatten(-1, (classes, *more)) if more else logits
    how: dict[str, Any] = {"reduction": reduction, "label_smoothing": label_smoothing, "sample_weight": sample_weight}
    return cross_entropy(logits, target, weight, ignore_index=ignored, **how)


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute input1ᵀ W input2 + bias for each model: inputs `[B, *, I1]` and `[B, *, I2]`, weight `[B, O, I1, I2]`,
    result `[B, *, O]`.

    W input2 is one matrix product for all O * I1 rows, without a copy of the weights; the rest is a sum of I1 products.
    """
    shapes = (input1.shape, input2.shape)
    if weight.dim() != 4 or shapes[0][:-1] != shapes[1][:-1] or (shapes[0][-1], shapes[1][-1]) != weight.shape[2:]:
        raise InvalidArgument(
            f"bilinear takes [B, *, I1], [B, *, I2] and weight [B, O, I1, I2], got {list(input1.shape)}, "
            f"{list(input2.shape)} and {list(weight.shape)}"
        )
    rows = ops.linear(input2, weight.flatten(1, 2)).unflatten(-1, weight.shape[1:3])  # [B, *, O, I1]
    y = (rows * input1.unsqueeze(-2)).sum(-1)
    return y if bias is None else y + bias.view(len(bias), *[1] * (y.dim() - 2), -1)


class _ScaledGradient(torch.autograd.Function):
    """Return the input; scale its gradient by `factor`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: Tensor) -> Tensor:
        ctx.save_for_backward(factor)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad * ctx.saved_tensors[0], None


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """`torch.nn.functional.embedding` for B models: indices `[B, *]` and tables `[B, V, D]` to `[B, *, D]`.

    With `max_norm`, the rows that are used are scaled down in the tables themselves, as in torch. The gradient is dense
    even with `sparse`, because the optimizers of arrays accept no others, but only used rows are computed.
    """
    indices = input if input.dtype == torch.int64 else input.long()
    if max_norm is not None:
        _renormalize(weight, indices, max_norm, norm_type)
    padding = -1 if padding_idx is None else padding_idx % weight.shape[1]
    rows = ops.embedding(computable(weight), indices, padding).to(weight.dtype)
    if scale_grad_by_freq:
        flat = indices.flatten(1)
        counts = weight.new_zeros(weight.shape[:2]).scatter_add_(1, flat, torch.ones_like(flat, dtype=weight.dtype))
        rows = _ScaledGradient.apply(rows, counts.gather(1, flat).view(*indices.shape, 1).reciprocal())
    return rows


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """`torch.nn.functional.embedding_bag` for B models: the sum, mean or maximum of bags of rows, `[B, N, D]`.

    `input` is `[B, N, L]`, or `[B, M]` with `offsets` `[B, N]`; `weight` is `[B, V, D]`. Bags of equal length are
    computed from the rows of an embedding. For others, torch's kernel is called once per model, because the bits of a
    single call would depend on B. The gradient is dense even with `sparse`.
    """
    if input.dim() not in (2, 3) or (input.dim() == 2) == (offsets is None):
        raise InvalidArgument(
            f"embedding_bag takes [B, N, L] without offsets or [B, M] with offsets [B, N]; got {list(input.shape)} and "
            f"{None if offsets is None else list(offsets.shape)}"
        )
    if max_norm is not None:
        _renormalize(weight, input, max_norm, norm_type)
    weighted = per_sample_weights is not None or scale_grad_by_freq or padding_idx is not None
    alike = input.dim() == 3 and input.size(2) > 0 and weight.dtype in (torch.float32, torch.float64)
    if alike and mode in ("sum", "mean", "max") and not weighted and on_cpu(weight):
        return _of_rows(embedding(input, weight), mode)
    plain = not weighted and not include_last_offset and input.numel() > 0 and not torch.compiler.is_compiling()
    sums = mode in ("sum", "mean") and weight.dtype in (torch.float32, torch.float64) and on_cpu(weight)
    if plain and sums and offsets is not None:
        return ops.embedding_bags(weight, input.long(), offsets.long(), mode == "mean")
    rules: dict[str, Any] = {"norm_type": norm_type, "scale_grad_by_freq": scale_grad_by_freq, "mode": mode}
    ends: dict[str, Any] = {"include_last_offset": include_last_offset, "padding_idx": padding_idx}
    nothing = [None] * len(weight)
    bags = [
        torch.nn.functional.embedding_bag(own, table, begins, per_sample_weights=weights, **rules, **ends)
        for own, table, begins, weights in zip(
            input,
            (weight.squeeze(0),) if len(weight) == 1 else weight.unbind(0),  # one gradient is not copied
            nothing if offsets is None else offsets,
            nothing if per_sample_weights is None else per_sample_weights,
            strict=True,
        )
    ]
    return bags[0].unsqueeze(0) if len(bags) == 1 else torch.stack(bags)


def _of_rows(rows: Tensor, mode: str) -> Tensor:
    """Return the sum, mean or maximum of bags of rows `[B, N, L, D]`."""
    if rows.size(2) == 1:
        return rows.squeeze(2)
    if mode == "max":
        return ops.max_over(rows, 2)[0].squeeze(2)
    return rows.sum(2) if mode == "sum" else mean(rows, 2)


@torch.no_grad()
def _renormalize(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> None:
    for table, used in zip(weight, indices, strict=True):
        torch.embedding_renorm_(table, used.contiguous(), max_norm, norm_type)
