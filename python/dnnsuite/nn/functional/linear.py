# SPDX-License-Identifier: MIT
"""Linear layers as functions, alone and before a cross-entropy."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ... import ops
from ...errors import InvalidArgument
from ._own_numbers import takes_own_numbers
from .loss import as_torch, cross_entropy


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
    return cross_entropy(
        logits,
        target,
        weight,
        ignore_index=ignored,
        reduction=reduction,
        label_smoothing=label_smoothing,
        sample_weight=sample_weight,
    )
