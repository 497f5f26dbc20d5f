# SPDX-License-Identifier: MIT
"""Normalisation with each model's own affine parameters."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch

from ..errors import InvalidArgument
from . import functional
from ._stateless import Stateless
from .array_module import ArrayModule, check_models

#: Newer torch can leave out the bias of a group or batch norm alone.
HAS_BIAS = "bias" in inspect.signature(torch.nn.GroupNorm.__init__).parameters


class _Affine(ArrayModule):
    """Layer with a weight and a bias, or neither, per model."""

    weight: torch.Tensor | None
    bias: torch.Tensor | None  # none at all for RMSNorm

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Set weights to one and biases to zero, like torch."""
        for name, value in (("weight", 1.0), ("bias", 0.0)):
            if (parameter := self._parameters.get(name)) is not None:
                parameter.fill_(value)


class LayerNorm(_Affine):
    """`torch.nn.LayerNorm` for B models: `[B, *, *normalized_shape]` to the same.

    Weight and bias are `[B, *normalized_shape]`.

    >>> import torch
    >>> from dnnsuite import nn
    >>> nn.LayerNorm(16, B=3)(torch.randn(3, 8, 16)).shape
    torch.Size([3, 8, 16])
    """

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
        return functional.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(_Affine):
    """`torch.nn.RMSNorm` for B models: `[B, *, *normalized_shape]` to the same; the weight is `[B, *normalized_shape]`.

    `eps=None` is the machine epsilon of the input's dtype.
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        B: int,
    ) -> None:
        super().__init__(B)
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape, self.eps, self.elementwise_affine = shape, eps, elementwise_affine
        where = {"device": device, "dtype": dtype}
        weight = torch.nn.Parameter(torch.ones(B, *shape, **where)) if elementwise_affine else None
        self.register_parameter("weight", weight)

    @classmethod
    def arguments_of(cls, module: Any) -> dict[str, Any]:
        return {
            "normalized_shape": tuple(module.normalized_shape),
            "eps": module.eps,
            "elementwise_affine": module.elementwise_affine,
        }

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        check_models(x, self.B, "RMSNorm")
        return functional.rms_norm(x, self.normalized_shape, self.weight, self.eps)


class GroupNorm(_Affine):
    """`torch.nn.GroupNorm` for B models: `[B, N, C, *]` to the same; weight and bias are `[B, C]`."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
        B: int,
    ) -> None:
        super().__init__(B)
        if num_channels % num_groups != 0:
            raise InvalidArgument(f"num_channels={num_channels} must be divisible by num_groups={num_groups}")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        where = {"device": device, "dtype": dtype}
        weight = torch.nn.Parameter(torch.ones(B, num_channels, **where)) if affine else None
        self.register_parameter("weight", weight)
        has_bias = affine and bias
        self.register_parameter("bias", torch.nn.Parameter(torch.zeros(B, num_channels, **where)) if has_bias else None)

    @classmethod
    def arguments_of(cls, module: Any) -> dict[str, Any]:
        return {
            "num_groups": module.num_groups,
            "num_channels": module.num_channels,
            "eps": module.eps,
            "affine": module.affine,
        } | ({"bias": module.bias is not None or not module.affine} if HAS_BIAS else {})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        check_models(x, self.B, "GroupNorm")
        if x.dim() < 3 or x.size(2) != self.num_channels:
            raise InvalidArgument(
                f"GroupNorm({self.num_groups}, {self.num_channels}, B={self.B}) takes [B, N, {self.num_channels}, *]; "
                f"got {list(x.shape)}"
            )
        return functional.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


class LocalResponseNorm(Stateless, function="local_response_norm"):
    """`torch.nn.LocalResponseNorm` for B models: `[B, N, C, *]` to the same."""
