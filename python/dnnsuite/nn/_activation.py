# SPDX-License-Identifier: MIT
"""Activations with a dimension argument, a weight, or random numbers. torch's other activations are element-wise, so
they work on `[B, ...]` unchanged.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..errors import InvalidArgument
from . import functional
from ._stateless import Stateless
from .array_module import ArrayModule, check_models, per_model
from .functional.activation import leaky_by_chance
from .model_tensor import physical
from .random_streams import advance, new_stream


class _Along(Stateless):
    """Activation along `dim`, which counts the dimensions of one model."""

    dim: int | None

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        check_models(x, self.B, type(self).__name__, least=1)
        function: Callable[..., torch.Tensor] = getattr(functional, self.function)
        if x.dim() == 1:  # a model's single number, which torch takes for a line of one
            return function(x.unsqueeze(1), self.dim).squeeze(1)
        return function(x, self.dim)


class Softmax(_Along, function="softmax"):
    """`torch.nn.Softmax` for B models; `dim` does not count the dimension of the models."""


class Softmin(_Along, function="softmin"):
    """`torch.nn.Softmin` for B models; `dim` does not count the dimension of the models."""


class LogSoftmax(_Along, function="log_softmax"):
    """`torch.nn.LogSoftmax` for B models; `dim` does not count the dimension of the models."""


class GLU(Stateless, function="glu"):
    """`torch.nn.GLU` for B models; `dim` does not count the dimension of the models."""


class Softmax2d(ArrayModule):
    """`torch.nn.Softmax2d` for B models: over the channels of `[B, N, C, H, W]` or `[B, C, H, W]`."""

    arguments = ()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        check_models(x, self.B, "Softmax2d")
        if x.dim() not in (4, 5):
            raise InvalidArgument(f"Softmax2d takes [B, N, C, H, W] or [B, C, H, W]; got {list(x.shape)}")
        return functional.softmax(x, -3)


class _OwnNumbers(ArrayModule):
    """Layer with a number per model for each of its `per_model_lists`, which take one for all models as well."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.per_model_lists:
            value = per_model(physical(value), self.B, name)
        super().__setattr__(name, value)

    @classmethod
    def arguments_of(cls, module: Any) -> dict[str, Any]:
        return {
            name: getattr(module, name)
            for name in inspect.signature(cls.torch_class).parameters
            if name in vars(module)
        }


class PReLU(_OwnNumbers):
    """`torch.nn.PReLU` for B models: input and output are `[B, N, C, *]`, the weight is `[B, num_parameters]`, and
    `init` is one number or one per model."""

    per_model_arguments = per_model_lists = ("init",)
    init: list[float]

    def __init__(
        self,
        num_parameters: int = 1,
        init: float | Sequence[float] = 0.25,
        device: Any = None,
        dtype: Any = None,
        *,
        B: int,
    ) -> None:
        super().__init__(B)
        self.num_parameters = num_parameters
        self.init = init  # type: ignore[assignment]
        self.weight = torch.nn.Parameter(torch.empty(B, num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Set every weight to `init`, as torch does."""
        self.weight.copy_(torch.tensor(self.init).unsqueeze(1).expand_as(self.weight))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        check_models(x, self.B, "PReLU", least=1)
        return functional.prelu(x, self.weight)


class RReLU(_OwnNumbers):
    """`torch.nn.RReLU` for B models. In training, the slope of each negative element is drawn between `lower` and
    `upper` (each one number, or one per model) from the model's own random stream, which `dnnsuite.nn.seed` starts. In
    evaluation the slope is the mean of `lower` and `upper`.

    It has no in-place form.
    """

    rng: torch.Tensor  # int64 [B, 2]: key and step of each model's stream

    per_model_arguments = per_model_lists = ("lower", "upper")
    lower: list[float]
    upper: list[float]

    def __init__(
        self,
        lower: float | Sequence[float] = 1.0 / 8,
        upper: float | Sequence[float] = 1.0 / 3,
        inplace: bool = False,
        *,
        device: Any = None,
        B: int,
    ) -> None:
        super().__init__(B)
        self.lower, self.upper, self.inplace = lower, upper, inplace  # type: ignore[assignment]
        if any(low > high for low, high in zip(self.lower, self.upper, strict=True)):
            raise InvalidArgument(f"RReLU: lower={lower!r} is above upper={upper!r}")
        self.register_buffer("rng", new_stream(B, device), persistent=False)

    def is_alike(self) -> bool:
        return not self.training and super().is_alike()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        check_models(x, self.B, "RReLU")
        return leaky_by_chance(x, self.lower, self.upper, advance(self.rng) if self.training else None)
