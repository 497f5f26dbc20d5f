# SPDX-License-Identifier: MIT
"""Convolutions of all models on a GPU: grouped as in HFTA, grouped with channels last, one per model on parallel
streams, as a batched product, by this package's depthwise kernel, or by a Triton kernel for all of them. The fastest
depends on the shape.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .. import ops
from .._ways import Way, fastest
from ..ops.library import cuda_kernels
from . import _triton_convolution as in_triton
from ._models import each_model, stack_models

_MOST_STREAMS = 8
_IN_TRITON = (F.conv1d, F.conv2d, F.conv_transpose1d, F.conv_transpose2d)
_streams: dict[torch.device, list[Any]] = {}


def convolve_on_gpu(
    plain: Callable[..., Tensor], input: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any
) -> Tensor:
    """Convolve `[B, N, C, *]` by the fastest way on this GPU; on a CPU that stands in for one by the first way."""
    ways = convolution_ways(plain, input, weight, bias, *rest)
    inputs = input, weight, bias
    facts = str(rest), in_triton.precision()
    way = fastest(plain.__name__, ways, inputs, *facts, compiled=("triton",)) if input.is_cuda else next(iter(ways))
    return ways[way](*inputs)


def convolution_ways(
    plain: Callable[..., Tensor], input: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any
) -> dict[str, Way]:
    """Return the ways to compute a convolution, by name; each takes input, weight and bias."""
    ways: dict[str, Way] = {}
    transposed = plain.__name__.startswith("conv_transpose")
    if input.stride(0) == 0 and not (transposed or rest[3] > 1 or input.requires_grad):
        ways["wide"] = lambda x, w, b: _wide(plain, x, w, b, *rest)
    ways |= {"groups": lambda x, w, b: grouped(plain, x, w, b, *rest)}

    def one(x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        return plain(x, w, b, *rest)

    ways["streams"] = lambda x, w, b: _on_streams(one, x, w, b)
    if plain is F.conv2d or plain is F.conv_transpose2d:  # images that lie so are what the ways above take
        if not input.permute(1, 3, 4, 0, 2).is_contiguous():
            ways["groups, channels last"] = lambda x, w, b: grouped(plain, _in_turn_last(x), w, b, *rest)
        if not input.movedim(2, -1).is_contiguous():
            ways["streams, channels last"] = lambda x, w, b: _on_streams(one, _last(x), w, b)
    groups = rest[3]
    if plain in _IN_TRITON and not isinstance(rest[1], str) and in_triton.takes(input, weight, bias, groups):
        ways["triton"] = lambda x, w, b: _by_triton(plain, x, w, b, *rest)
    if plain is not F.conv2d or isinstance(rest[1], str):
        return ways
    stride, padding, dilation = map(_pair, rest[:3])
    if groups == 1 and weight.shape[3:] == (1, 1) and padding == (0, 0):
        ways["product"] = lambda x, w, b: _product(x, w, b, stride)
    has_kernel = cuda_kernels or not input.is_cuda
    alike = input.dtype == weight.dtype and not torch.is_autocast_enabled(input.device.type)
    if has_kernel and alike and groups == input.size(2) == weight.size(1) and weight.size(2) == 1:
        ways["depthwise"] = lambda x, w, b: _depthwise(x, w, b, stride, padding, dilation)
    return ways


def _pair(size: Any) -> tuple[int, int]:
    values = (size, size) if isinstance(size, int) else tuple(size) * (2 // len(size))
    return values[0], values[1]


def grouped(plain: Callable[..., Tensor], input: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    """Convolve all models in one call with B times the groups: `[B, N, C, *]` as `[N, B * C, *]`.

    The models' batches are side by side as channels; a result in memory order `[N, B, O, *]` is a view.
    """
    B, N = input.shape[:2]
    transposed = plain.__name__.startswith("conv_transpose")
    *others, groups = rest if not transposed else (*rest[:3], rest[4], rest[3])
    side_by_side = input.transpose(0, 1).reshape(N, -1, *input.shape[3:])
    filters = weight.reshape(-1, *weight.shape[2:])
    offsets = None if bias is None else bias.reshape(-1)
    if transposed:
        stride, padding, output_padding, dilation = others
        y = plain(side_by_side, filters, offsets, stride, padding, output_padding, B * groups, dilation)
    else:
        y = plain(side_by_side, filters, offsets, *others, B * groups)
    return y.unflatten(1, (B, -1)).transpose(0, 1)


def _wide(plain: Callable[..., Tensor], input: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    """Convolve a batch that all models share with the filters of all of them, in one call."""
    offsets = None if bias is None else bias.reshape(-1)
    y = plain(input[0], weight.flatten(0, 1), offsets, *rest)
    return y.unflatten(1, (len(weight), -1)).transpose(0, 1)


def _in_turn_last(input: Tensor) -> Tensor:
    """Lay `[B, N, C, H, W]` out in memory order `[N, H, W, B, C]`, as a grouped convolution with channels last needs
    it."""
    return input.permute(1, 3, 4, 0, 2).contiguous().permute(3, 0, 4, 1, 2)


def _last(input: Tensor) -> Tensor:
    """Lay `[B, N, C, H, W]` out with each model's channels last in memory."""
    return input.movedim(2, -1).contiguous().movedim(-1, 2)


def _product(input: Tensor, weight: Tensor, bias: Tensor | None, stride: tuple[int, int]) -> Tensor:
    """Convolve with filters of one pixel as a product of the models' pixels `[B, N * H * W, C]`."""
    pixels = input.movedim(2, -1)
    if stride != (1, 1):
        pixels = pixels[:, :, :: stride[0], :: stride[1]]
    return ops.linear(pixels, weight.flatten(2), bias).movedim(-1, 2)


def _depthwise(input: Tensor, weight: Tensor, bias: Tensor | None, *steps: tuple[int, int]) -> Tensor:
    y = ops.depthwise(input.movedim(2, -1), weight.squeeze(2).movedim(1, -1), bias, *steps)
    return y.movedim(-1, 2)


def _by_triton(plain: Callable[..., Tensor], input: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    """Convolve all models by one Triton kernel; lines as images of one row."""
    line = plain in (F.conv1d, F.conv_transpose1d)
    transposed = plain in (F.conv_transpose1d, F.conv_transpose2d)
    stride, padding, *others = rest
    extra, groups, dilation = others if transposed else (None, others[1], others[0])
    steps = [_pair(size) for size in (stride, padding, dilation)]
    more = None if extra is None else _pair(extra)
    if line:
        input, weight = input.unsqueeze(3), weight.unsqueeze(3)
        steps = [(idle, size[1]) for idle, size in zip((1, 0, 1), steps, strict=True)]
        more = None if more is None else (0, more[1])
    y = in_triton.convolve(input, weight, bias, (steps[0], steps[1], steps[2]), groups, more)
    return y.squeeze(3) if line else y


def _on_streams(call: Way, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Convolve model by model on streams that fork from the caller's and join it again, which a graph can capture.

    Autograd runs each backward pass on the stream of its forward.
    """
    if not input.is_cuda:
        return each_model(call, input, weight, bias)
    caller = torch.cuda.current_stream(input.device)
    streams = _streams_of(input.device)[: len(input)]
    for stream in streams:
        stream.wait_stream(caller)
    found = []
    biases = [None] * len(input) if bias is None else bias.unbind(0)
    for model, own in enumerate(zip(input.unbind(0), weight.unbind(0), biases, strict=True)):
        with torch.cuda.stream(streams[model % len(streams)]):
            found.append(call(*own))
    for stream in streams:
        caller.wait_stream(stream)
    for tensor in (input, weight, bias, *found):
        if tensor is not None:
            _note_streams(tensor, streams, caller)
    return stack_models(found)


def _note_streams(tensor: Tensor, streams: list[Any], caller: Any) -> None:
    """Tell the allocator who reads a tensor, so that its memory is not given away on one stream while another reads."""
    if not torch.cuda.is_current_stream_capturing():  # a graph's memory is its own, and its order is the capture's
        for stream in (*streams, caller):
            tensor.record_stream(stream)


def _streams_of(device: torch.device) -> list[Any]:
    if device not in _streams:
        _streams[device] = [torch.cuda.Stream(device) for _ in range(_MOST_STREAMS)]
    return _streams[device]
