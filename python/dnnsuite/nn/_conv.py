# SPDX-License-Identifier: MIT
"""Convolution layers: weights `[B, O, I / groups, *]`, transposed ones `[B, I, O / groups, *]`, biases `[B, O]`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch

from ..errors import InvalidArgument
from ..ops.device import on_cpu
from . import functional
from ._models import cast
from ._parametric import Parametric
from .array_module import check_models
from .sharing import held_once

Size = int | Sequence[int]


def laid_out(weight: torch.Tensor) -> torch.Tensor:
    """Lay a weight `[B, O, I, *]` of lines, images or volumes out as its device convolves: on a CPU with the input
    channels last in memory, or every pass would rearrange it and its gradient (an eighth of a ResNet-18's step);
    unchanged elsewhere."""
    if not on_cpu(weight):
        return weight.contiguous()
    return functional.convolution.channels_last(weight)


def _around(plain: Any) -> list[int]:
    """Return the padding of a torch convolution in the format of `pad`: before and after each dimension, last dimension
    first."""
    if plain.padding == "valid":
        return [0] * (2 * len(plain.kernel_size))
    if plain.padding == "same":
        whole = [d * (k - 1) for d, k in zip(plain.dilation, plain.kernel_size, strict=True)]
        return [part for total in reversed(whole) for part in (total // 2, total - total // 2)]
    return [size for size in reversed(plain.padding) for _ in range(2)]


class _ConvBase(Parametric):
    """Base of convolutions, whose weights have a memory order of their own."""

    arguments: ClassVar[tuple[str, ...]]
    dims: ClassVar[int]
    in_channels: int
    out_channels: int
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    padding_mode: str
    weight: torch.Tensor
    bias: torch.Tensor | None
    compute_dtype: torch.dtype | None = None  # if not that of the parameters: `nn.compute_dtype`

    @classmethod
    def laid_out(cls, weight: torch.Tensor) -> torch.Tensor:
        """Lay a weight `[B, O, I, *]` out as its device convolves with it."""
        return laid_out(weight) if weight.dim() > 2 else weight

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> _ConvBase:
        super()._apply(fn, recurse)
        self._lay_out()
        return self

    @classmethod
    @torch.no_grad()
    def prepare_shared(cls, models: Sequence[Any], kept_once: dict[str, torch.Tensor]) -> None:
        old = kept_once.get("weight")
        if old is None:
            return
        kept_once["weight"] = made = cls.laid_out(old.unsqueeze(0))[0]
        for model in models:
            if model.weight.data_ptr() == old.data_ptr():  # or there were two bases in memory
                model.weight.data = made

    def _lay_out(self) -> None:
        """Lay the weights out for their device; a weight that all models share stays unchanged."""
        if not held_once(self.weight):
            self.weight.data = self.laid_out(self.weight.data)

    def renew(self, device: torch.device) -> None:
        self._lay_out()

    @classmethod
    def arguments_of(cls, module: Any) -> dict[str, Any]:
        return super().arguments_of(module) | {"bias": module.bias is not None}

    def _convolved(self, convolve: Callable[..., torch.Tensor], x: torch.Tensor, *rest: Any) -> torch.Tensor:
        """Call `convolve(x, weight, bias, *rest)` in the layer's `compute_dtype`."""
        low = self.compute_dtype
        if low is None:
            return convolve(x, self.weight, self.bias, *rest)
        bias = None if self.bias is None else cast(self.bias, low)
        return convolve(cast(x, low), cast(self.weight, low), bias, *rest).to(x.dtype)

    def _check(self, x: torch.Tensor) -> None:
        name = type(self).__name__
        check_models(x, self.B, name)
        batched = x.dim() == self.dims + 3
        if not (batched or x.dim() == self.dims + 2) or x.size(2 if batched else 1) != self.in_channels:
            space = ", ".join("DHW"[-self.dims :]) if self.dims > 1 else "L"
            raise InvalidArgument(
                f"{name}({self.in_channels}, {self.out_channels}, B={self.B}) takes [B, N, {self.in_channels}, {space}]"
                f" or [B, {self.in_channels}, {space}]; got {list(x.shape)}"
            )


class _Conv(_ConvBase):
    padding: str | tuple[int, ...]
    arguments = (
        *("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups"),
        "padding_mode",
    )

    def _take(self, plain: Any, device: Any) -> None:
        super()._take(plain, device)
        # What the mode puts around the image first, in `pad`'s order: the last dimension first.
        self._around = _around(plain)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self._check(x)
        padding: str | Size = self.padding
        if self.padding_mode != "zeros":
            x, padding = functional.pad(x, self._around, self.padding_mode), 0
        convolve = getattr(functional, f"conv{self.dims}d")
        return self._convolved(convolve, x, self.stride, padding, self.dilation, self.groups)


class Conv1d(_Conv, dims=1): ...


class Conv2d(_Conv, dims=2): ...


class Conv3d(_Conv, dims=3): ...


class _ConvTranspose(_ConvBase):
    padding: tuple[int, ...]
    output_padding: tuple[int, ...]
    arguments = (
        *("in_channels", "out_channels", "kernel_size", "stride", "padding", "output_padding", "groups"),
        *("dilation", "padding_mode"),
    )

    def forward(self, x: torch.Tensor, output_size: Sequence[int] | None = None) -> torch.Tensor:
        self._check(x)
        extra = self.output_padding if output_size is None else self._extra(x, list(output_size))
        convolve = getattr(functional, f"conv_transpose{self.dims}d")
        return self._convolved(convolve, x, self.stride, self.padding, extra, self.groups, self.dilation)

    def _extra(self, x: torch.Tensor, output_size: list[int]) -> list[int]:
        """Return the output padding for which one model's result has this size; leading dimensions may be left out."""
        asked = output_size[-self.dims :]
        geometry = zip(x.shape[-self.dims :], self.stride, self.padding, self.kernel_size, self.dilation, strict=True)
        least = [(n - 1) * s - 2 * p + d * (k - 1) + 1 for n, s, p, k, d in geometry]
        extra = [size - low for size, low in zip(asked, least, strict=False)]
        whole = len(output_size) in (self.dims, x.dim() - 1)
        if not whole or any(not 0 <= e < s for e, s in zip(extra, self.stride, strict=True)):
            most = [low + s - 1 for low, s in zip(least, self.stride, strict=True)]
            raise InvalidArgument(
                f"{type(self).__name__}: output_size={output_size} must end in sizes from {least} to {most} "
                f"for an input {list(x.shape)}"
            )
        return extra


class ConvTranspose1d(_ConvTranspose, dims=1): ...


class ConvTranspose2d(_ConvTranspose, dims=2): ...


class ConvTranspose3d(_ConvTranspose):
    torch_class, dims = torch.nn.ConvTranspose3d, 3

    @classmethod
    def laid_out(cls, weight: torch.Tensor) -> torch.Tensor:
        """Leave the weight as torch has it: with its channels last a convolution of many channels takes half as long
        again."""
        return weight.contiguous()
