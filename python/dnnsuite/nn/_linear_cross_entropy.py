# SPDX-License-Identifier: MIT
"""A linear layer and its cross-entropy as one loss."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..errors import InvalidArgument, Unavailable
from . import functional
from ._linear import Linear
from ._reduction import check_reduction
from .array_module import ArrayModule, check_models


def _missing(*arguments: Any, **keywords: Any) -> torch.nn.Module:
    raise Unavailable(
        f"torch {torch.__version__} has no LinearCrossEntropyLoss, so it has none with B=0",
        remedy="give B, or take a newer torch",
    )


class LinearCrossEntropyLoss(ArrayModule):
    """`torch.nn.LinearCrossEntropyLoss` for B models: `[B, N, in_features]` and class indices `[B, N]` to `[B]`.

    The logits `[N, num_classes]` are computed in chunks, together with their gradient, and are never stored as a whole.
    With class weights, or probabilities as targets, all logits are computed at once.
    """

    torch_class = getattr(torch.nn, "LinearCrossEntropyLoss", _missing)
    weight: torch.Tensor | None

    per_model_arguments = ("weight",)
    _options = ("reduction", "ignore_index", "label_smoothing", "options")

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: Any = None,
        dtype: Any = None,
        reduction: str = "mean",
        weight: Any = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: Any = None,
        B: int,
    ) -> None:
        super().__init__(B)
        check_reduction(reduction)
        if not 0.0 <= label_smoothing <= 1.0:
            raise InvalidArgument(f"label_smoothing must be between 0 and 1, got {label_smoothing!r}")
        weights = [w for w in weight if w is not None] if isinstance(weight, list) else weight
        if isinstance(weights, list) and weights:
            weights = torch.stack([torch.ones_like(weights[0]) if w is None else w for w in weight])
        if isinstance(weights, list):
            weights = None
        self.register_buffer("weight", None if weights is None else weights.to(device).expand(B, num_classes).clone())
        self.num_classes, self.out_features = num_classes, tuple(out_features)
        self.reduction, self.ignore_index, self.label_smoothing = reduction, ignore_index, label_smoothing
        self.options = options
        outputs = math.prod(out_features, start=num_classes)
        self.linear = Linear(in_features, outputs, bias=bias, device=device, dtype=dtype, B=B)

    @classmethod
    def arguments_of(cls, module: Any) -> dict[str, Any]:
        weight = [None] * module.B if isinstance(module, cls) and module.weight is None else module.weight
        own = {name: getattr(module, name) for name in ("num_classes", "out_features", *cls._options)}
        linear = {"in_features": module.linear.in_features, "bias": module.linear.bias is not None}
        return {**linear, **own, "weight": weight}

    def extra_repr(self) -> str:
        return f"num_classes={self.num_classes}, reduction={self.reduction!r}, B={self.B}"

    def forward(
        self, input: torch.Tensor, target: torch.Tensor, *, sample_weight: torch.Tensor | None = None
    ) -> torch.Tensor:
        check_models(input, self.B, "LinearCrossEntropyLoss")
        weight, bias = self.linear.weight, self.linear.bias
        shape = (self.num_classes, *self.out_features)
        return functional.linear_cross_entropy(
            input,
            weight.unflatten(1, shape) if self.out_features else weight,
            target,
            linear_bias=bias.unflatten(1, shape) if bias is not None and self.out_features else bias,
            weight=self.weight,
            sample_weight=sample_weight,
            **{name: getattr(self, name) for name in self._options},
        )
