# SPDX-License-Identifier: MIT
"""Functions that pad, resample and rearrange. They have no weights and treat every sample separately."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from ...errors import InvalidArgument
from ...ops.memory_order import memory_order, way_back
from ...ops.shared import once
from ._rearranging import shuffled_channels, shuffled_pixels, unshuffled_pixels, windows_apart
from ._resampling import interpolated, repeated, takes_channels_last
from ._samples import each_sample, over_samples
from ._whole_maps import sizes_of

fold = over_samples(F.fold, "fold", 1)
_unfold = over_samples(F.unfold, "unfold", 2)


def unfold(input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """`torch.nn.functional.unfold` of `[B, N, C, H, W]`, or without N."""
    kernel, *rest = (sizes_of(size) for size in (kernel_size, dilation, padding, stride))
    if takes_channels_last(input, 2) and _lie_apart(input, kernel, *rest):
        return windows_apart(input, (kernel[0], kernel[-1]))
    result: Tensor = _unfold(input, kernel_size, dilation, padding, stride)
    return result


def _lie_apart(input: Tensor, kernel: Sequence[int], *rest: Sequence[int]) -> bool:
    """Return True for windows that lie side by side and leave no pixel out."""
    dilation, padding, stride = rest
    single = all(len(size) in (1, 2) for size in (kernel, *rest)) and min(kernel) > 0
    apart = single and set(dilation) == {1} and set(padding) == {0} and {*kernel} == {*stride}
    ends = zip(input.shape[3:], (kernel[0], kernel[-1]), (stride[0], stride[-1]), strict=True)
    return apart and all(k == s and n % k == 0 for n, k, s in ends)


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """`torch.nn.functional.pad` of `[B, ...]`: `pad` counts from the last dimension and never pads the dimension of the
    models.
    """
    if len(pad) // 2 >= input.dim():
        raise InvalidArgument(f"pad={list(pad)} reaches dimension 0 of {list(input.shape)}, which is the model")
    padding = list(pad)
    if mode == "constant":
        if value in (None, 0) and (y := repeated(input, padding, "zero")) is not None:
            return y
        return once(lambda one: _with_constants(one, padding, value), input)
    if value is None and (y := repeated(input, padding, mode)) is not None:
        return y
    result: Tensor = each_sample(
        lambda x: F.pad(x, padding, mode, value), f"pad with mode={mode!r}", len(padding) // 2, input
    )
    return result


def _with_constants(input: Tensor, padding: list[int], value: float | None) -> Tensor:
    """Pad `[B, ...]` with constants. The result has the input's memory order, which torch's has not beyond images."""
    order = memory_order(input)
    if order == sorted(order) or len(padding) % 2 != 0:
        return F.pad(input, padding, "constant", value)
    ends = {input.dim() - 1 - i: padding[2 * i : 2 * i + 2] for i in range(len(padding) // 2)}
    outermost = min(place for place, dim in enumerate(order) if dim in ends)
    turned = [size for dim in reversed(order[outermost:]) for size in ends.get(dim, (0, 0))]
    return F.pad(input.permute(order), turned, "constant", value).permute(way_back(order))


def _images(input: Tensor, name: str) -> int:
    """Return the number of dimensions after the channels of `[B, N, C, *]`."""
    if input.dim() < 4:
        raise InvalidArgument(f"{name} takes [B, N, C, *] with the model in dimension 0; got {list(input.shape)}")
    return input.dim() - 3


def interpolate(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """`torch.nn.functional.interpolate` of `[B, N, C, *]`."""
    arguments: tuple[Any, ...] = (size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
    dims = _images(input, "interpolate")
    if (y := interpolated(input, *arguments)) is not None:
        return y
    result: Tensor = each_sample(lambda x: F.interpolate(x, *arguments), "interpolate", dims, input)
    return result


def upsample(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """`torch.nn.functional.upsample`, an older name of `interpolate`."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """`torch.nn.functional.upsample_nearest`: `interpolate` with mode="nearest"."""
    return interpolate(input, size, scale_factor, mode="nearest")


def upsample_bilinear(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """`torch.nn.functional.upsample_bilinear`: `interpolate` with mode="bilinear" and the corners aligned."""
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


def _rearranged(function: Callable[[Tensor], Tensor], input: Tensor) -> Tensor:
    """Apply a function of the last three dimensions. torch has kernels for images, which keep their memory order."""
    result: Tensor = each_sample(function, "", 2, input) if input.dim() == 5 else function(input)
    return result


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """`torch.nn.functional.pixel_shuffle` of `[B, *, C * r², H, W]`."""
    if upscale_factor > 0 and takes_channels_last(input, 2) and input.size(2) % upscale_factor**2 == 0:
        return shuffled_pixels(input, upscale_factor)
    return _rearranged(lambda x: F.pixel_shuffle(x, upscale_factor), input)


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """`torch.nn.functional.pixel_unshuffle` of `[B, *, C, H * r, W * r]`."""
    r = downscale_factor
    if r > 0 and takes_channels_last(input, 2) and input.size(3) % r == 0 and input.size(4) % r == 0:
        return unshuffled_pixels(input, r)
    return _rearranged(lambda x: F.pixel_unshuffle(x, r), input)


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """`torch.nn.functional.channel_shuffle` of `[B, N, C, *]`."""
    dims = _images(input, "channel_shuffle")
    if groups > 0 and takes_channels_last(input, dims) and input.size(2) % groups == 0:
        return shuffled_channels(input, groups)
    result: Tensor = each_sample(lambda x: F.channel_shuffle(x, groups), "channel_shuffle", dims, input)
    return result


def grid_sample(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Tensor:
    """`torch.nn.functional.grid_sample`: input `[B, N, C, *]`, grid `[B, N, *, 2 or 3]`."""
    dims = _images(input, "grid_sample")

    def sample(x: Tensor, places: Tensor) -> Tensor:
        return F.grid_sample(x, places, mode, padding_mode, align_corners)

    result: Tensor = each_sample(sample, "grid_sample", dims, input, grid)
    return result


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """`torch.nn.functional.affine_grid`: theta `[B, N, 2, 3]` or `[B, N, 3, 4]`, `size` is that of one model's
    images.
    """
    if theta.dim() != 4 or theta.size(1) != size[0]:
        raise InvalidArgument(
            f"affine_grid for images {list(size)} takes theta [B, {size[0]}, ...]; got {list(theta.shape)}"
        )
    B, N = theta.shape[:2]
    grid = F.affine_grid(theta.flatten(0, 1), [B * N, *size[1:]], align_corners)
    return grid.unflatten(0, (B, N))
