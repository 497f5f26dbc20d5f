# SPDX-License-Identifier: MIT
"""Pooling functions. Every sample is pooled separately, so the samples of all models are one batch.

On a CPU pools of volumes are those of their planes, then along their depth: with the channels last in memory that takes
a fifth to two thirds of the time of torch's pools.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ... import ops
from ...ops.device import on_cpu
from ...ops.library import tracing, transforming
from ._convolution_rules import triple
from ._samples import each_sample, named, over_samples
from .mean import mean
from .vision import averaged

FEW_IN_VOLUMES = 16384
"""Elements of one model up to which torch's single call is faster (`benchmarks/ops/grid.py`)."""

FEW_MAXIMA, VECTOR = 786_432, 16
"""Elements of all models up to which torch's single max pool is faster: of channels that fill a vector, where it takes
half to nine tenths of the time. Of fewer channels it takes twice the time."""


def lies_last(input: Tensor) -> bool:
    """Return True for large volumes `[B, N, C, D, H, W]` whose channels, several, are last in memory."""
    known = input.dim() == 6 and input.size(0) > 0 and input.dtype in (torch.float32, torch.float64)
    if not (known and on_cpu(input)) or input[0].numel() <= FEW_IN_VOLUMES:
        return False
    return not input[0].is_contiguous() and input[0].movedim(1, -1).is_contiguous()


def has_few_maxima(input: Tensor) -> bool:
    """Return True for volumes `[B, N, C, D, H, W]` of which torch's max pool is faster, channels last."""
    return input.dim() == 6 and input.size(2) >= VECTOR and input.numel() <= FEW_MAXIMA


def by_planes(pool: Callable[..., Tensor], input: Tensor, *sizes: Any, **options: Any) -> Tensor | None:
    """Pool the planes of volumes, then along their depth, by `pool` of images `[B, N, C, H, W]`; None where torch's
    pool of volumes is faster, or has an error message.

    Args:
        sizes: kernel, stride and the others of `pool`, one number for all sides or one for each.
    """
    if not lies_last(input):
        return None
    steps = [triple(sizes[0] if size in (None, (), []) else size) for size in sizes]
    if any(len(step) != 3 for step in steps) or min(steps[1]) < 1:
        return None
    N, depth = input.size(1), input.size(3)
    images = pool(input.movedim(2, 3).flatten(1, 2), *(step[1:] for step in steps), **options)
    planes = images.unflatten(1, (N, depth)).movedim(3, 2)
    along = zip((step[0] for step in steps), (1, 1, 0, 1), strict=False)
    return pool(planes.flatten(4), *along, **options).unflatten(4, planes.shape[4:])


Size = int | Sequence[int]
Pair = tuple[int, int]

_PLAIN = {
    f"{stem}{dims}d": over_samples(getattr(F, f"{stem}{dims}d"), f"{stem}{dims}d", dims)
    for stem in ("max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool", "lp_pool")
    for dims in (1, 2, 3)
}
"""torch's functions by name, for the samples of all models."""

max_pool3d_with_indices = over_samples(F.max_pool3d_with_indices, "max_pool3d_with_indices", 3)
adaptive_max_pool1d, lp_pool3d = _PLAIN["adaptive_max_pool1d"], _PLAIN["lp_pool3d"]


def _pair(size: Size, dims: int, across: int) -> Pair:
    """Convert a size to (height, width); for a line, an image of one row, the height is `across`. (-1, -1) for a size
    that torch refuses."""
    values = (size,) if isinstance(size, int) else tuple(size)
    if len(values) not in (1, dims):
        return -1, -1
    return (across if dims == 1 else values[0]), values[-1]


def _has_windows(sides: Pair, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair) -> bool:
    """Return True if windows fit and each has a pixel of the image; else torch's error message is used.

    Taps that are no further apart than the image is long cannot step over it.
    """
    ends = zip(sides, kernel, stride, padding, dilation, strict=True)
    return all(
        k > 0 and s > 0 and d > 0 and 0 <= p <= k // 2 and d * (k - 1) < n + 2 * p and (d <= n or p == 0)
        for n, k, s, p, d in ends
    )


FEW_NUMBERS, FEW_TAKEN = 65536, 16384
"""Elements of all models up to which torch's call is faster than this package's operator, which adds a Python
function; of few channels those of all windows, for torch's call fills no vector then."""

MOST_OF_ADAPTIVE = 49
"""Pixels of a window up to which this package's maximum is 1.1 to 1.7 times as fast as torch's adaptive one; of 256
pixels, or of whole maps, 0.7 to 1.0 times."""


Steps = tuple[Pair, Pair, Pair, Pair]


def _steps(
    dims: int, shape: Sequence[int], kernel_size: Size, stride: Size | None, padding: Size, dilation: Size, least: Pair
) -> Steps | None:
    """Return kernel, stride, padding and dilation as pairs if this package's operators are faster on `shape`; not for a
    single channel, where a vector holds one number.

    Args:
        least: numbers that pay; of few channels those of all windows.
    """
    if len(shape) != dims + 3 or shape[2] == 1:
        return None
    kernel = _pair(kernel_size, dims, 1)
    steps = kernel if stride in (None, (), []) else _pair(stride, dims, 1)
    found = kernel, steps, _pair(padding, dims, 0), _pair(dilation, dims, 1)
    if min(steps) <= 0 or not _has_windows((shape[-2] if dims == 2 else 1, shape[-1]), *found):
        return None
    numbers = math.prod(shape)
    taken = numbers * kernel[0] * kernel[1] // (steps[0] * steps[1])
    pays = taken > least[1] if shape[2] < VECTOR else numbers > least[0]
    return found if pays else None


_known_steps = functools.lru_cache(maxsize=1024)(_steps)


def _ours(dims: int, input: Tensor, *sizes: Any) -> Steps | None:
    """Return `_steps` of an input that the operators take; None for others."""
    if input.dtype not in (torch.float32, torch.float64) or not on_cpu(input):
        return None
    known = not tracing() and not any(isinstance(size, list) for size in sizes)
    least = FEW_NUMBERS, FEW_TAKEN
    if not known:
        return _steps(dims, input.shape, *sizes, least)  # type: ignore[call-arg]
    return _known_steps(dims, input.shape, *sizes, least)


def _pooled(operator: Callable[..., Any], dims: int, input: Tensor, *steps: Any) -> Any:
    """Apply `operator` to images or lines, channels last; once to a batch that all models share (stride 0)."""
    images = input if dims == 2 else input.unsqueeze(-2)
    shared = images.size(0) > 1 and images.stride(0) == 0

    def result(y: Tensor) -> Tensor:
        y = y.movedim(-1, 2)
        y = y.expand(images.size(0), *y.shape[1:]) if shared else y
        return y if dims == 2 else y.squeeze(-2)

    found = operator((images[:1] if shared else images).movedim(2, -1), *steps)
    return result(found) if isinstance(found, Tensor) else tuple(map(result, found))


def _avg_pool(dims: int, input: Tensor, kernel_size: Size, stride: Size | None, padding: Size, *options: Any) -> Tensor:
    steps = _ours(dims, input, kernel_size, stride, padding, 1)
    if steps is not None and (options[2:] in ((), (None,)) or options[2] != 0):  # torch has a message for 0
        return _pooled(ops.avg_pool, dims, input, *steps[:3], *options[:2], *(o or 0 for o in options[2:]))
    return _PLAIN[f"avg_pool{dims}d"](input, kernel_size, stride, padding, *options)


def _largest(dims: int, shape: str, with_indices: bool = False) -> Callable[..., Any]:
    """Make `max_pool*d`, or the one that always returns indices."""

    def pool(
        input: Tensor,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        dilation: Size = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
        *,
        activation: str = "none",
    ) -> Any:
        indices = return_indices or with_indices
        steps = _ours(dims, input, kernel_size, stride, padding, dilation)
        if steps is not None and steps[0][0] * steps[0][1] <= ops.MOST_TAPS:
            if not indices:
                return _pooled(ops.max_pool, dims, input, *steps, ceil_mode, activation)
            if (activation == "none" or not any(steps[2])) and not transforming():
                return _pooled(ops.max_pool_with_indices, dims, input, *steps, ceil_mode, activation)
        input = input.relu() if activation == "relu" else input
        return _PLAIN[name](input, kernel_size, stride, padding, dilation, ceil_mode, indices)

    name = f"max_pool{dims}d"
    return named(pool, name + "_with_indices" * with_indices, f"of `[B, N, C, {shape}]`, or without N.")


max_pool1d, max_pool1d_with_indices = _largest(1, "L"), _largest(1, "L", with_indices=True)
max_pool2d, max_pool2d_with_indices = _largest(2, "H, W"), _largest(2, "H, W", with_indices=True)


def max_pool3d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """`torch.nn.functional.max_pool3d` of `[B, N, C, D, H, W]`, or without N."""
    sizes = kernel_size, stride, padding, dilation
    of_torch = return_indices or has_few_maxima(input)
    y = None if of_torch else by_planes(max_pool2d, input, *sizes, ceil_mode=ceil_mode)
    return _PLAIN["max_pool3d"](input, *sizes, ceil_mode, return_indices) if y is None else y


def max_pool_of_relu(function: Callable[..., Any], input: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Compute `function(relu(input), ...)` for one of the functions `max_pool*d`; in one pass for lines and images."""
    if function in (max_pool1d, max_pool2d, max_pool1d_with_indices, max_pool2d_with_indices):
        return function(input, *args, **kwargs, activation="relu")
    return function(input.relu(), *args, **kwargs)


def avg_pool1d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """`torch.nn.functional.avg_pool1d` of `[B, N, C, L]`, or without N."""
    return _avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad)


def avg_pool2d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """`torch.nn.functional.avg_pool2d` of `[B, N, C, H, W]`, or without N."""
    return _avg_pool(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def avg_pool3d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """`torch.nn.functional.avg_pool3d` of `[B, N, C, D, H, W]`, or without N."""
    sizes, options = (kernel_size, stride, padding), (ceil_mode, count_include_pad)
    if divisor_override is None:
        y = by_planes(avg_pool2d, input, *sizes, ceil_mode=ceil_mode, count_include_pad=count_include_pad)
        if y is not None:
            return y
    return _PLAIN["avg_pool3d"](input, *sizes, *options, divisor_override)


def _norm_pool(dims: int, shape: str) -> Callable[..., Tensor]:
    """Make `lp_pool*d`: the norm of each window from the mean of powers, with this package's means where they pay."""

    def pool(
        input: Tensor, norm_type: float, kernel_size: Size, stride: Size | None = None, ceil_mode: bool = False
    ) -> Tensor:
        steps = None if math.isinf(norm_type) else _ours(dims, input, kernel_size, stride, 0, 1)
        if steps is None:
            return _PLAIN[name](input, norm_type, kernel_size, stride, ceil_mode)
        mean_power = _pooled(ops.avg_pool, dims, input.pow(norm_type), *steps[:3], ceil_mode)
        sums = (mean_power.sign() * mean_power.abs().relu()).mul(math.prod(steps[0]))
        return sums.pow(1.0 / norm_type)

    name = f"lp_pool{dims}d"
    return named(pool, name, f"of `[B, N, C, {shape}]`, or without N.")


lp_pool1d, lp_pool2d = _norm_pool(1, "L"), _norm_pool(2, "H, W")


def _even_windows(dims: int, input: Tensor, output_size: Any) -> tuple[int, ...] | None:
    """Return the side lengths of an adaptive pool's windows if all are alike and none overlap; None for others."""
    sides = input.shape[-dims:]
    sizes = (output_size,) * dims if isinstance(output_size, int) else tuple(output_size)
    if input.dim() != dims + 3 or len(sizes) != dims:
        return None
    asked = [n if size is None else size for n, size in zip(sides, sizes, strict=True)]
    if any(size < 1 or n % size != 0 for n, size in zip(sides, asked, strict=True)):
        return None
    return tuple(n // size for n, size in zip(sides, asked, strict=True))


def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """`torch.nn.functional.adaptive_avg_pool1d` of `[B, N, C, L]`, or without N."""
    y = averaged(input, output_size, 1)
    return _PLAIN["adaptive_avg_pool1d"](input, output_size) if y is None else y


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """`torch.nn.functional.adaptive_avg_pool2d` of `[B, N, C, H, W]`, or without N."""
    if output_size in (1, (1, 1), [1, 1]) and input.dim() in (4, 5) and input.shape[-2:].numel() > 0:
        # What torch computes, less the strides it gives the result in place, which no recorded step can repeat.
        return mean(input, (-2, -1), keepdim=True)
    kernel = _even_windows(2, input, output_size)
    if kernel is not None and (steps := _ours(2, input, kernel, None, 0, 1)) is not None:
        return _pooled(ops.avg_pool, 2, input, *steps[:3])
    y = averaged(input, output_size, 2)
    return _PLAIN["adaptive_avg_pool2d"](input, output_size) if y is None else y


def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """`torch.nn.functional.adaptive_max_pool2d` of `[B, N, C, H, W]`, or without N."""
    kernel = None if return_indices else _even_windows(2, input, output_size)
    if kernel is not None and kernel[0] * kernel[1] <= MOST_OF_ADAPTIVE and kernel != input.shape[-2:]:
        steps = _ours(2, input, kernel, None, 0, 1)
        if steps is not None:
            return _pooled(ops.max_pool, 2, input, *steps)
    return _PLAIN["adaptive_max_pool2d"](input, output_size, return_indices)


def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """`torch.nn.functional.adaptive_avg_pool3d` of `[B, N, C, D, H, W]`, or without N."""
    if output_size in (1, (1, 1, 1), [1, 1, 1]) and lies_last(input):
        return mean(input, (-3, -2, -1), keepdim=True)
    kernel = _even_windows(3, input, output_size) if lies_last(input) else None
    return _PLAIN["adaptive_avg_pool3d"](input, output_size) if kernel is None else avg_pool3d(input, kernel)


def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """`torch.nn.functional.adaptive_max_pool3d` of `[B, N, C, D, H, W]`, or without N."""
    kernel = None if return_indices or not lies_last(input) else _even_windows(3, input, output_size)
    if kernel is not None:
        return max_pool3d(input, kernel)
    return _PLAIN["adaptive_max_pool3d"](input, output_size, return_indices)


def _unpool(plain: Callable[..., Any], dims: int, shape: str) -> Callable[..., Tensor]:
    """Make a function that undoes a pool of samples; images with the channels last stay so."""

    def unpool(
        input: Tensor,
        indices: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        output_size: Sequence[int] | None = None,
    ) -> Tensor:
        def samples(x: Tensor, i: Tensor) -> Tensor:
            last = dims == 2 and all(t.is_contiguous(memory_format=torch.channels_last) for t in (x, i))
            laid = (t if last else t.contiguous() for t in (x, i))
            return plain(*laid, kernel_size, stride, padding, output_size)

        return each_sample(samples, plain.__name__, dims, input, indices)

    return named(unpool, plain.__name__, f"of input and indices `[B, N, C, {shape}]`, or without N.")


max_unpool1d, max_unpool2d = _unpool(F.max_unpool1d, 1, "L"), _unpool(F.max_unpool2d, 2, "H, W")
max_unpool3d = _unpool(F.max_unpool3d, 3, "D, H, W")
