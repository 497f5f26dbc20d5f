# SPDX-License-Identifier: MIT
"""Activations with a dimension argument, a weight, or random numbers. torch's other activations are element-wise and
work on `[B, ...]` unchanged.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any

import torch

from ..errors import InvalidArgument
from . import functional
from .array_module import ArrayModule, check_models, per_model
from .model_tensor import physical
from .random_streams import advance


class _Along(ArrayModule):
    """Activation along `dim`, which counts the dimensions of one model."""

    def __init__(self, dim: int | None = None, *, B: int) -> None:
        super().__init__(B)
        self.dim = dim

    @classmethod
    def arguments_of(cls, module: Any) -> dict[str, Any]:
        return {"dim": module.dim}


class Softmax(_Along):
    """`torch.nn.Softmax` for B models; `dim` counts without the model."""

    torch_class = torch.nn.Softmax

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        check_models(x, self.B, "Softmax")
        return functional.softmax(x, self.dim)


class Softmin(_Along):
    """`torch.nn.Softmin` for B models; `dim` counts without the model."""

    torch_class = torch.nn.Softmin

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        check_models(x, self.B, "Softmin")
        return functional.softmin(x, self.dim)


class LogSoftmax(_Along):
    """`torch.nn.LogSoftmax` for B models; `dim` counts without the model."""

    torch_class = torch.nn.LogSoftmax

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        check_models(x, self.B, "LogSoftmax")
        return functional.log_softmax(x, self.dim)


class GLU(_Along):
    """`torch.nn.GLU` for B models; `dim` counts without the model."""

    torch_class = torch.nn.GLU

    def __init__(self, dim: int = -1, *, B: int) -> None:
        super().__init__(dim, B=B)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        check_models(x, self.B, "GLU")
        assert self.dim is not None
        return functional.glu(x, self.dim)


class Softmax2d(ArrayModule):
    """`torch.nn.Softmax2d` for B models: over the channels of `[B, N, C, H, W]` or `[B, C, H, W]`."""

    torch_class = torch.nn.Softmax2d

    def __init__(self, *, B: int) -> None:
        super().__init__(B)

    @classmethod
    def arguments_of(cls, module: Any) -> dict[str, Any]:
        return {}

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

    @classmethod
    def per_model_arguments(cls) -> tuple[str, ...]:
        return cls.per_model_lists


class PReLU(_OwnNumbers):
    """`torch.nn.PReLU` for B models: `[B, N, C, *]` to the same; the weight is `[B, num_parameters]`, and `init` a
    number or one per model."""

    torch_class = torch.nn.PReLU
    per_model_lists = ("init",)
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
        """Set every weight to `init`, like torch."""
        self.weight.copy_(torch.tensor(self.init).unsqueeze(1).expand_as(self.weight))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        check_models(x, self.B, "PReLU")
        return functional.prelu(x, self.weight)


_MIX = (0xBF58476D1CE4E5B9 - (1 << 64), 0x94D049BB133111EB - (1 << 64))
_STEP, _GOLDEN = 0xD1B54A32D192ED03 - (1 << 64), 0x9E3779B97F4A7C15 - (1 << 64)


def _mixed(z: torch.Tensor) -> torch.Tensor:
    """SplitMix64's finaliser (Steele et al., OOPSLA 2014) of int64 numbers; shifts bring in zeros."""
    for bits, factor in ((30, _MIX[0]), (27, _MIX[1])):
        z = (z ^ ((z >> bits) & ((1 << (64 - bits)) - 1))) * factor
    return z ^ ((z >> 31) & ((1 << 33) - 1))


def uniform(rng: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Return float32 numbers in [0, 1) of `shape` [B, ...]: a function of each model's (key, step) in `rng` [B, 2] and
    of the element only."""
    elements = math.prod(shape[1:])
    stream = _mixed(rng[:, 0] + _mixed(rng[:, 1] * _STEP))
    counter = torch.arange(1, elements + 1, device=rng.device) * _GOLDEN
    bits = _mixed(stream.unsqueeze(1) + counter) & 0xFFFFFF
    return (bits.float() * 2.0**-24).view(shape)


class RReLU(_OwnNumbers):
    """`torch.nn.RReLU` for B models: in training the slope of every negative element is drawn between `lower` and
    `upper`, each a number or one per model, from a random stream per model that `dnnsuite.nn.seed` starts; in
    evaluation it is their mean.

    There is no in-place form.
    """

    torch_class = torch.nn.RReLU
    rng: torch.Tensor  # int64 [B, 2]: key and step of each model's stream

    per_model_lists = ("lower", "upper")
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
        keys = torch.randint(-(1 << 62), 1 << 62, (B,), dtype=torch.int64)
        rng = torch.stack([keys, torch.zeros_like(keys)], dim=1).to(device)
        self.register_buffer("rng", rng, persistent=False)

    def is_alike(self) -> bool:
        return not self.training and super().is_alike()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        check_models(x, self.B, "RReLU")
        pairs = list(zip(self.lower, self.upper, strict=True))
        if not self.training:
            return functional.leaky_relu(x, [(low + high) / 2 for low, high in pairs])
        numbers = torch.tensor([(low, high - low) for low, high in pairs], device=x.device)
        low, width = numbers.view(-1, 2, *(1,) * (x.dim() - 1)).unbind(1)
        slope = low + width * uniform(advance(self.rng), x.shape)
        return torch.where(x < 0, x * slope.to(x.dtype), x)
