# SPDX-License-Identifier: MIT
"""Layers without parameters; torch's constructor checks their arguments. They pad and pool, `[B, N, C, *]` or `[B, C,
*]` without a batch, rearrange and resample, and measure distances."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from . import functional
from ._models import shifted
from .array_module import ArrayModule, check_models
from .model_tensor import Deferred, outside
from .waiting import input_of_relu


def of_dimensions(base: type, stem: str, functions: str = "", **attributes: Any) -> list[Any]:
    """Make the layers of lines, images and volumes that are called `stem` and 1d, 2d, 3d, and so are their functions in
    `dnnsuite.nn.functional` by `functions`."""
    made = []
    for dims in ("1d", "2d", "3d"):
        own = attributes | ({"function": functions + dims} if functions else {})
        names = {"__module__": base.__module__, "__qualname__": stem + dims}
        made.append(type(base)(stem + dims, (base,), names, **own))
    return made


class Stateless(ArrayModule):
    """Layer that is a function of its input and of torch's constructor arguments.

    `arguments` are these, in order. `function` is its name in `dnnsuite.nn.functional`; its parameters after the inputs
    have the arguments' names.
    """

    arguments: ClassVar[tuple[str, ...]] = ()
    function: ClassVar[str]

    def __init_subclass__(cls, **attributes: Any) -> None:
        super().__init_subclass__(**attributes)
        if "torch_class" in cls.__dict__:
            cls.arguments = tuple(inspect.signature(cls.torch_class).parameters)

    def __init__(self, *args: Any, B: int, **kwargs: Any) -> None:
        super().__init__(B)
        plain = type(self).torch_class(*args, **kwargs)  # checks the arguments and fills in torch's defaults
        for name in self.arguments:
            setattr(self, name, getattr(plain, name))

    def forward(self, *inputs: torch.Tensor) -> Any:
        check_models(inputs[0], self.B, type(self).__name__)
        return getattr(functional, self.function)(*inputs, **self.arguments_of(self))


class _Pad(Stateless):
    function = "pad"
    mode: ClassVar[str]
    padding: tuple[int, ...]

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        check_models(x, self.B, type(self).__name__)
        return functional.pad(x, self.padding, self.mode, getattr(self, "value", None))


ConstantPad1d, ConstantPad2d, ConstantPad3d = of_dimensions(_Pad, "ConstantPad", mode="constant")
ZeroPad1d, ZeroPad2d, ZeroPad3d = of_dimensions(_Pad, "ZeroPad", mode="constant", value=0.0)
ReflectionPad1d, ReflectionPad2d, ReflectionPad3d = of_dimensions(_Pad, "ReflectionPad", mode="reflect")
ReplicationPad1d, ReplicationPad2d, ReplicationPad3d = of_dimensions(_Pad, "ReplicationPad", mode="replicate")
CircularPad1d, CircularPad2d, CircularPad3d = of_dimensions(_Pad, "CircularPad", mode="circular")


class _MaxPool(Stateless):
    return_indices: bool

    def joined(self, waiting: Deferred) -> torch.Tensor | None:
        if self.return_indices or (x := input_of_relu(waiting)) is None:
            return None
        with outside():
            return self.after_relu(x)

    def after_relu(self, x: torch.Tensor) -> torch.Tensor:
        """`self(relu(x))` in one pass."""
        check_models(x, self.B, type(self).__name__)
        return functional.max_pool_of_relu(getattr(functional, self.function), x, **self.arguments_of(self))


class _MaxUnpool(Stateless):
    def forward(  # type: ignore[override]
        self, x: torch.Tensor, indices: torch.Tensor, output_size: Sequence[int] | None = None
    ) -> torch.Tensor:
        check_models(x, self.B, type(self).__name__)
        arguments = self.arguments_of(self)
        return getattr(functional, self.function)(x, indices, **arguments, output_size=output_size)


MaxPool1d, MaxPool2d, MaxPool3d = of_dimensions(_MaxPool, "MaxPool", "max_pool")
AvgPool1d, AvgPool2d, AvgPool3d = of_dimensions(Stateless, "AvgPool", "avg_pool")
AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d = of_dimensions(
    Stateless, "AdaptiveAvgPool", "adaptive_avg_pool"
)
AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d = of_dimensions(
    Stateless, "AdaptiveMaxPool", "adaptive_max_pool"
)
LPPool1d, LPPool2d, LPPool3d = of_dimensions(Stateless, "LPPool", "lp_pool")
MaxUnpool1d, MaxUnpool2d, MaxUnpool3d = of_dimensions(_MaxUnpool, "MaxUnpool", "max_unpool")


class Flatten(Stateless):
    """`torch.nn.Flatten` for B models; `start_dim` and `end_dim` do not count the dimension of the models."""

    start_dim: int
    end_dim: int

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        check_models(x, self.B, "Flatten")
        start, end = (shifted(dim, x, "Flatten") for dim in (self.start_dim, self.end_dim))
        return x.flatten(start, end)


class Unflatten(Stateless):
    """`torch.nn.Unflatten` for B models; `dim` does not count the dimension of the models."""

    dim: int
    unflattened_size: tuple[int, ...]

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        check_models(x, self.B, "Unflatten")
        return x.unflatten(shifted(self.dim, x, "Unflatten"), self.unflattened_size)


class PixelShuffle(Stateless, function="pixel_shuffle"):
    """`torch.nn.PixelShuffle` for B models: `[B, *, C * r², H, W]` to `[B, *, C, H * r, W * r]`."""


class PixelUnshuffle(Stateless, function="pixel_unshuffle"):
    """`torch.nn.PixelUnshuffle` for B models: `[B, *, C, H * r, W * r]` to `[B, *, C * r², H, W]`."""


class ChannelShuffle(Stateless, function="channel_shuffle"):
    """`torch.nn.ChannelShuffle` for B models: `[B, N, C, *]`."""


class Fold(Stateless, function="fold"):
    """`torch.nn.Fold` for B models: `[B, N, C * k, L]` or `[B, C * k, L]`."""


class Unfold(Stateless, function="unfold"):
    """`torch.nn.Unfold` for B models: `[B, N, C, H, W]` or `[B, C, H, W]`."""


class Upsample(Stateless, function="interpolate"):
    """`torch.nn.Upsample` for B models: `[B, N, C, *]`."""


class _Upsampling2d(Stateless):
    function = "interpolate"
    keywords: ClassVar[dict[str, Any]]

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        check_models(x, self.B, type(self).__name__)
        return functional.interpolate(x, **self.arguments_of(self), **self.keywords)


class UpsamplingNearest2d(_Upsampling2d):
    """`torch.nn.UpsamplingNearest2d` for B models: `[B, N, C, H, W]`."""

    keywords: ClassVar[dict[str, Any]] = {"mode": "nearest"}


class UpsamplingBilinear2d(_Upsampling2d):
    """`torch.nn.UpsamplingBilinear2d` for B models: `[B, N, C, H, W]`."""

    keywords: ClassVar[dict[str, Any]] = {"mode": "bilinear", "align_corners": True}


class CosineSimilarity(Stateless, function="cosine_similarity"):
    """`torch.nn.CosineSimilarity` for B models; `dim` counts the dimensions of one model: dim=1 is D of `[B, N, D]`."""


class PairwiseDistance(ArrayModule):
    """`torch.nn.PairwiseDistance` for B models: two inputs `[B, N, D]` to distances `[B, N]`."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False, *, B: int) -> None:
        super().__init__(B)
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    @classmethod
    def arguments_of(cls, module: Any) -> dict[str, Any]:
        return {"p": module.norm, "eps": module.eps, "keepdim": module.keepdim}

    def forward(self, x1: torch.Tensor, x2: torch.Tensor) -> torch.Tensor:
        check_models(x1, self.B, "PairwiseDistance")
        return functional.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)
