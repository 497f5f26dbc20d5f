# SPDX-License-Identifier: MIT
"""Normalisation with each model's own affine parameters."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from ..errors import InvalidArgument
from . import functional
from ._parametric import Parametric
from ._stateless import Stateless
from .array_module import check_models

#: Newer torch can leave out the bias of a group or batch norm alone.
_HAS_BIAS = "bias" in inspect.signature(torch.nn.GroupNorm.__init__).parameters


def bias_of(module: Any) -> dict[str, bool]:
    """Argument `bias` of a group, batch or instance norm, where torch has it."""
    return {"bias": module.bias is not None or not module.affine} if _HAS_BIAS else {}


class Affine(Parametric):
    """Base of normalisations: weights that start at one and biases that start at zero, `[B, *shape]`."""

    weight: torch.Tensor | None
    bias: torch.Tensor | None

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

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        check_models(x, self.B, "LayerNorm")
        return functional.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(Affine):
    """`torch.nn.RMSNorm` for B models: input and output are `[B, *, *normalized_shape]`, the weight is `[B,
    *normalized_shape]`.

    `eps=None` means the machine epsilon of the input's dtype.
    """

    arguments = ("normalized_shape", "eps", "elementwise_affine")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        check_models(x, self.B, "RMSNorm")
        return functional.rms_norm(x, self.normalized_shape, self.weight, self.eps)


class GroupNorm(Affine):
    """`torch.nn.GroupNorm` for B models: input and output are `[B, N, C, *]`, weight and bias are `[B, C]`."""

    arguments = ("num_groups", "num_channels", "eps", "affine")

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
