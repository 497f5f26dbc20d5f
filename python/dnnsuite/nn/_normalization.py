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
_HAS_BIAS = "bias" in inspect.signature(torch.nn.GroupNorm.__init__).parameters


def bias_of(module: Any) -> dict[str, bool]:
    """Argument `bias` of a group, batch or instance norm, where torch has it."""
    return {"bias": module.bias is not None or not module.affine} if _HAS_BIAS else {}


class Affine(ArrayModule):
    """Base of normalisations: weights that start at one and biases that start at zero, `[B, *shape]`."""

    weight: torch.Tensor | None
    bias: torch.Tensor | None

    def _own_affine(self, shape: tuple[int, ...], device: Any, dtype: Any, **has: bool) -> None:
        """Register the parameters named in `has`, where it is true; None where it is false."""
        for name, it_has in has.items():
            values = torch.empty(self.B, *shape, device=device, dtype=dtype) if it_has else None
            self.register_parameter(name, None if values is None else torch.nn.Parameter(values))
        Affine.reset_parameters(self)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Set weights to one and biases to zero, as torch does."""
        for name, value in (("weight", 1.0), ("bias", 0.0)):
            if (parameter := self._parameters.get(name)) is not None:
                parameter.fill_(value)


class LayerNorm(Affine):
    """`torch.nn.LayerNorm` for B models: input and output are `[B, *, *normalized_shape]`.

    Weight and bias are `[B, *normalized_shape]`.

    >>> import torch
    >>> from dnnsuite import nn
    >>> nn.LayerNorm(16, B=3)(torch.randn(3, 8, 16)).shape
    torch.Size([3, 8, 16])
    """

    arguments = ("normalized_shape", "eps", "elementwise_affine", "bias")

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
        self._own_affine(shape, device, dtype, weight=elementwise_affine, bias=elementwise_affine and bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        check_models(x, self.B, "LayerNorm")
        return functional.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(Affine):
    """`torch.nn.RMSNorm` for B models: input and output are `[B, *, *normalized_shape]`, the weight is `[B,
    *normalized_shape]`.

    `eps=None` means the machine epsilon of the input's dtype.
    """

    arguments = ("normalized_shape", "eps", "elementwise_affine")

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
        self._own_affine(shape, device, dtype, weight=elementwise_affine)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        check_models(x, self.B, "RMSNorm")
        return functional.rms_norm(x, self.normalized_shape, self.weight, self.eps)


class GroupNorm(Affine):
    """`torch.nn.GroupNorm` for B models: input and output are `[B, N, C, *]`, weight and bias are `[B, C]`."""

    arguments = ("num_groups", "num_channels", "eps", "affine")

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
        self._own_affine((num_channels,), device, dtype, weight=affine, bias=affine and bias)

    @classmethod
    def arguments_of(cls, module: Any) -> dict[str, Any]:
        return super().arguments_of(module) | bias_of(module)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        check_models(x, self.B, "GroupNorm")
        if x.dim() < 3 or x.size(2) != self.num_channels:
            raise InvalidArgument(
                f"GroupNorm({self.num_groups}, {self.num_channels}, B={self.B}) takes [B, N, {self.num_channels}, *]; "
                f"got {list(x.shape)}"
            )
        return functional.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


class LocalResponseNorm(Stateless, function="local_response_norm"):
    """`torch.nn.LocalResponseNorm` for B models: input and output are `[B, N, C, *]`."""
