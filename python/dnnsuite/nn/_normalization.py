# SPDX-License-Identifier: MIT
"""Normalisation with each model's own affine parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import ops
from ..errors import InvalidArgument
from ._base import ArrayModule, check_models
from ._precision import computable, match


class LayerNorm(ArrayModule):
    """`torch.nn.LayerNorm` for B models: `[B, *, *normalized_shape]` to the same.

    Weight and bias are `[B, *normalized_shape]`.
    """

    torch_class = torch.nn.LayerNorm

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        B: int,
    ) -> None:
        super().__init__(B)
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape, self.eps, self.elementwise_affine = shape, eps, elementwise_affine
        where = {"device": device, "dtype": dtype}
        if elementwise_affine:
            self.weight = torch.nn.Parameter(torch.ones(B, *shape, **where))
        else:
            self.register_parameter("weight", None)
        if elementwise_affine and bias:
            self.bias = torch.nn.Parameter(torch.zeros(B, *shape, **where))
        else:
            self.register_parameter("bias", None)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Weight one, bias zero, as torch's."""
        if self.weight is not None:
            self.weight.fill_(1.0)
        if self.bias is not None:
            self.bias.zero_()

    @classmethod
    def arguments_of(cls, module: Any) -> dict[str, Any]:
        return {
            "normalized_shape": tuple(module.normalized_shape),
            "eps": module.eps,
            "elementwise_affine": module.elementwise_affine,
            "bias": module.bias is not None,
        }

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        check_models(x, self.B, "LayerNorm")
        dims = len(self.normalized_shape)
        if tuple(x.shape[-dims:]) != self.normalized_shape or x.dim() <= dims:
            inner = ", ".join(map(str, self.normalized_shape))
            raise InvalidArgument(f"LayerNorm over [{inner}] takes [B, ..., {inner}]; got {list(x.shape)}")
        flat = x if dims == 1 else x.flatten(-dims)
        weight = None if self.weight is None else self.weight.flatten(1)
        bias = None if self.bias is None else self.bias.flatten(1)
        return ops.layer_norm(match(computable(flat), weight), weight, bias, self.eps).view(x.shape)
