# SPDX-License-Identifier: MIT
"""Functions that pad, resample and rearrange. They have no weights and treat every sample separately.

Lines and images with the channels last are upsampled, padded or averaged by this package's operator, volumes are
upsampled: torch's functions know that order for some modes of images only, are slow for volumes of few channels, and
copy lines and what they pad. Pixels and channels are put in another order with the channels last before and after, also
in a user's own shuffles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ... import ops
from ...errors import InvalidArgument
from ...ops.device import on_cpu
from ...ops.memory_order import memory_order, way_back
from ...ops.shared import is_shared, once
from ._convolution_rules import sizes_of
from ._samples import each_sample, over_samples


def shuffled_pixels(input: Tensor, factor: int) -> Tensor:
    """Compute `pixel_shuffle` of images whose channels are a multiple of `factor` squared."""
    N, C, H, W = input.shape[1:]
    outputs = C // factor**2
    parts, shape = (N, H, W, outputs, factor, factor), (N, H * factor, W * factor, outputs)
    return once(lambda one: ops.rearranged(one, parts, (0, 1, 2, 5, 3, 6, 4), shape), input)


def unshuffled_pixels(input: Tensor, factor: int) -> Tensor:
    """Compute `pixel_unshuffle` of images whose sides are multiples of `factor`."""
    N, C, H, W = input.shape[1:]
    height, width = H // factor, W // factor
    parts, shape = (N, height, factor, width, factor, C), (N, height, width, C * factor**2)
    return once(lambda one: ops.rearranged(one, parts, (0, 1, 2, 4, 6, 3, 5), shape), input)


def shuffled_channels(input: Tensor, groups: int) -> Tensor:
    """Compute `channel_shuffle` of lines or images whose channels are a multiple of `groups`."""
    N, C, *sides = input.shape[1:]
    parts = N * math.prod(sides), groups, C // groups
    return once(lambda one: ops.rearranged(one, parts, (0, 1, 3, 2), (N, *sides, C)), input)


def windows_apart(input: Tensor, kernel: tuple[int, int]) -> Tensor:
    """Compute `unfold` of images whose sides are multiples of the windows', which lie side by side; contiguous."""
    N, C, H, W = input.shape[1:]
    height, width = kernel
    rows, columns = H // height, W // width
    parts, shape = (N, rows, height, columns, width, C), (N, C * height * width, rows * columns)
    return once(lambda one: ops.rearranged(one, parts, (0, 1, 6, 3, 5, 2, 4), shape), input).movedim(2, -1)


Pair = tuple[int, int]

_OF_LINES = {"nearest": "nearest", "nearest-exact": "nearest-exact", "linear": "linear"}
_OF_IMAGES = {"nearest": "nearest", "nearest-exact": "nearest-exact", "bilinear": "linear", "bicubic": "cubic"}
_OF_VOLUMES = {"nearest": "nearest", "nearest-exact": "nearest-exact", "trilinear": "linear"}
MODES = {1: _OF_LINES, 2: _OF_IMAGES, 3: _OF_VOLUMES}
"""torch's modes of lines, images and volumes, and the operator's."""


def takes_channels_last(input: Tensor, dims: int) -> bool:
    """Return True for lines `[B, N, C, L]`, images `[B, N, C, H, W]` or volumes `[B, N, C, D, H, W]` of several
    channels, which lie last in memory: on a CPU, in float32 or float64."""
    if dims not in MODES or input.dim() != dims + 3 or input.size(2) < 2 or input.numel() == 0:
        return False
    if input.dtype not in (torch.float32, torch.float64) or not on_cpu(input):
        return False
    return (input[:1] if is_shared(input) else input).movedim(2, -1).is_contiguous()


def _per_dimension(value: Any, dims: int) -> tuple[Any, ...] | None:
    values = tuple(value) if isinstance(value, Sequence) else (value,) * dims
    return values if len(values) == dims else None


def _sides(input: Tensor, size: Any, scale_factor: Any, recompute: bool) -> tuple[list[int], list[float]] | None:
    """Return the sides of what torch would interpolate, and its steps with corners that are not aligned."""
    dims = input.dim() - 3
    asked = _per_dimension(size if scale_factor is None else scale_factor, dims)
    if asked is None or (size is None) == (scale_factor is None):
        return None
    sides = [int(a if scale_factor is None else n * a) for n, a in zip(input.shape[3:], asked, strict=True)]
    if min(sides) < 1:
        return None
    if scale_factor is None or recompute:
        return sides, [n / side for n, side in zip(input.shape[3:], sides, strict=True)]
    return sides, [1.0 / factor for factor in asked]


def interpolated(
    input: Tensor,
    size: Any,
    scale_factor: Any,
    mode: str,
    align_corners: bool | None,
    recompute_scale_factor: bool | None,
    antialias: bool,
) -> Tensor | None:
    """Compute `torch.nn.functional.interpolate`, all of whose arguments these are; None where torch's is used."""
    dims = input.dim() - 3
    if antialias or mode not in MODES.get(dims, ()) or not takes_channels_last(input, dims):
        return None
    kind = MODES[dims][mode]
    if (align_corners is not None and kind.startswith("nearest")) or recompute_scale_factor not in (None, True, False):
        return None
    found = _sides(input, size, scale_factor, bool(recompute_scale_factor))
    if found is None:
        return None
    sides, steps = found
    if align_corners:
        ends = zip(input.shape[3:], sides, strict=True)
        return ops.resample(input, f"{kind} corners", sides, [(n - 1) / (m - 1) if m > 1 else 0.0 for n, m in ends])
    return ops.resample(input, kind, sides, steps)


def repeated(input: Tensor, padding: Sequence[int], mode: str) -> Tensor | None:
    """Compute `torch.nn.functional.pad` with zeros, or in a mode that repeats pixels; None where torch's is used."""
    dims = len(padding) // 2
    if (
        mode not in ("zero", "circular", "replicate", "reflect")
        or len(padding) not in (2, 4)  # volumes take two passes, in which torch's is faster
        or min(padding, default=-1) < 0
    ):
        return None
    if not takes_channels_last(input, dims):
        return None
    before, after = list(padding[-2::-2]), list(padding[-1::-2])
    room = {"circular": 0, "reflect": 1}
    ends = list(zip(input.shape[3:], before, after, strict=True))
    if mode in room and any(max(b, a) + room[mode] > n for n, b, a in ends):
        return None
    return ops.resample(input, mode, [n + b + a for n, b, a in ends], before=before)


def averaged(input: Tensor, output_size: Any, dims: int) -> Tensor | None:
    """Compute an adaptive mean of lines or images; None where torch's is used."""
    asked = _per_dimension(output_size, dims)
    if asked is None or not takes_channels_last(input, dims):
        return None
    sides = [n if size is None else size for n, size in zip(input.shape[3:], asked, strict=True)]
    return ops.resample(input, "average", sides) if min(sides) > 0 else None


fold = over_samples(F.fold, "fold", 1)
_unfold = over_samples(F.unfold, "unfold", 2)


def unfold(input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """`torch.nn.functional.unfold` of `[B, N, C, H, W]`, or without N."""
    kernel, *rest = (sizes_of(size) for size in (kernel_size, dilation, padding, stride))
    if takes_channels_last(input, 2) and _lie_apart(input, kernel, *rest):
        return windows_apart(input, (kernel[0], kernel[-1]))
    return _unfold(input, kernel_size, dilation, padding, stride)


def _lie_apart(input: Tensor, kernel: Sequence[int], *rest: Sequence[int]) -> bool:
    """Return True for windows that lie side by side and leave no pixel out."""
    dilation, padding, stride = rest
    single = all(len(size) in (1, 2) for size in (kernel, *rest)) and min(kernel) > 0
    apart = single and set(dilation) == {1} and set(padding) == {0} and {*kernel} == {*stride}
    ends = zip(input.shape[3:], (kernel[0], kernel[-1]), (stride[0], stride[-1]), strict=True)
    return apart and all(k == s and n % k == 0 for n, k, s in ends)


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """`torch.nn.functional.pad` of `[B, ...]`: `pad` counts from the last dimension and never pads the dimension of the
    models."""
    if len(pad) // 2 >= input.dim():
        raise InvalidArgument(f"pad={list(pad)} reaches dimension 0 of {list(input.shape)}, which is the model")
    padding = list(pad)
    if mode == "constant":
        if value in (None, 0) and (y := repeated(input, padding, "zero")) is not None:
            return y
        return once(lambda one: _with_constants(one, padding, value), input)
    if value is None and (y := repeated(input, padding, mode)) is not None:
        return y
    return each_sample(lambda x: F.pad(x, padding, mode, value), f"pad with mode={mode!r}", len(padding) // 2, input)


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
    return each_sample(lambda x: F.interpolate(x, *arguments), "interpolate", dims, input)


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
    return each_sample(function, "", 2, input) if input.dim() == 5 else function(input)


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
    return each_sample(lambda x: F.channel_shuffle(x, groups), "channel_shuffle", dims, input)


def grid_sample(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Tensor:
    """`torch.nn.functional.grid_sample`: input `[B, N, C, *]`, grid `[B, N, *, 2 or 3]`."""
    dims = _images(input, "grid_sample")

    def sample(x: Tensor, places: Tensor) -> Tensor:
        return F.grid_sample(x, places, mode, padding_mode, align_corners)

    return each_sample(sample, "grid_sample", dims, input, grid)


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """`torch.nn.functional.affine_grid`: theta `[B, N, 2, 3]` or `[B, N, 3, 4]`, `size` is that of one model's
    images."""
    if theta.dim() != 4 or theta.size(1) != size[0]:
        raise InvalidArgument(
            f"affine_grid for images {list(size)} takes theta [B, {size[0]}, ...]; got {list(theta.shape)}"
        )
    B, N = theta.shape[:2]
    grid = F.affine_grid(theta.flatten(0, 1), [B * N, *size[1:]], align_corners)
    return grid.unflatten(0, (B, N))


def contiguous_pixels(x: Tensor) -> Tensor | None:
    """Copy a view `[B, N, *parts, *sides]` of images whose channels lie last in memory, and were cut into parts that
    stand in another order since, as in a user's channel shuffle: the channels lie last in the new order, too. None for
    other tensors."""
    lies, rank = [dim for dim in memory_order(x)[1:] if x.size(dim) != 1], x.dim()
    for sides in (1, 2, 3):
        first = rank - sides
        pixels = [dim for dim in (1, *range(first, rank)) if x.size(dim) != 1]
        parts = lies[len(pixels) :]
        if lies[: len(pixels)] == pixels and parts != sorted(parts):
            order = [0, 1, *range(first, rank), *range(2, first)]
            copy = ops.copied_in_order(x, order)
            return None if copy is None else copy.permute(way_back(order))
    return None


def joined_pixels(x: Tensor, sizes: Sequence[int]) -> Tensor | None:
    """Reshape x `[B, *]` to images `[B, *sizes]`, sizes `[N, C, *sides]`, by a copy whose channels lie last in memory.
    None where a view is enough, or the channels of x do not lie last."""
    if not 3 <= len(sizes) <= 5 or x.dim() <= len(sizes) + 1 or x.is_contiguous():
        return None
    groups = _groups(x.shape, sizes)
    if groups is None or not _channels_inside(x, groups):
        return None
    if all(x.stride(a) == x.stride(b) * x.size(b) for dims in groups for a, b in pairwise(dims)):
        return None
    samples, channels, *sides = groups
    single = [dim for dim in range(1, x.dim()) if x.size(dim) == 1]
    copy = ops.copied_in_order(x, [0, *samples, *chain.from_iterable(sides), *channels, *single])
    if copy is None:
        return None
    return copy.view(x.size(0), sizes[0], *sizes[2:], sizes[1]).movedim(-1, 2)


def _channels_inside(x: Tensor, groups: list[list[int]]) -> bool:
    """Return True if the channels, the second of the `groups` of dimensions, lie inside of all sides in memory."""
    channels, *sides = ([x.stride(dim) for dim in dims] for dims in groups[1:])
    if not channels or not any(sides):
        return False
    inside = max(channels) < min(max(side) for side in sides if side)
    return inside and (len(sides) > 1 or min(channels) == 1)


def _groups(shape: Sequence[int], sizes: Sequence[int]) -> list[list[int]] | None:
    """List, for each of `sizes`, the dimensions of `[B, *]` that it joins, none of size 1; None if one would be cut."""
    dims = [dim for dim in range(1, len(shape)) if shape[dim] != 1]
    groups: list[list[int]] = []
    for size in sizes:
        group, joined = [], 1
        while joined < size and dims:
            group.append(dims.pop(0))
            joined *= shape[group[-1]]
        if joined != size:
            return None
        groups.append(group)
    return None if dims else groups
