# SPDX-License-Identifier: MIT
"""Convolution functions: each model has its own filters and biases, `[B, O, I / groups, *]` and `[B, O]`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ... import ops
from ..._torch import transforming, unsafe_view
from ...errors import InvalidArgument
from ...ops.device import on_cpu, on_gpu
from ...ops.shared import folded, is_frozen, is_kept, is_shared, spread
from .._convolution_ways import convolve_on_gpu
from .._models import computable, convolve_models, each_model, match
from ._convolution_rules import (
    FEW_TAPS,
    Size,
    fits,
    from_single_pixels,
    is_grouped_sample,
    is_outer,
    is_pixel_product,
    is_pointwise,
    lies_whole,
    padding_of,
    pair,
    pays_as_models,
    pays_in_windows,
    single_tap,
    sizes_of,
    steps_go_wrong,
    takes_windows,
    transposed_of_windows,
    volume_convolution,
    whole_map,
)
from ._samples import named


def check_images(input: Tensor, weight: Tensor, bias: Tensor | None, dims: int, name: str) -> None:
    """Refuse inputs other than `[B, N, C, *]` or `[B, C, *]`, and weights of another number of models."""
    space = ", ".join("DHW"[-dims:]) if dims > 1 else "L"
    if input.dim() not in (dims + 2, dims + 3):
        raise InvalidArgument(
            f"{name} takes [B, N, C, {space}] or [B, C, {space}] with the model in dimension 0; got {list(input.shape)}"
        )
    if weight.dim() != dims + 3 or weight.size(0) != input.size(0):
        raise InvalidArgument(
            f"{name} of {input.size(0)} models {list(input.shape)} takes a weight of {dims + 3} dimensions, the first "
            f"of them {input.size(0)}; got {list(weight.shape)}"
        )
    if bias is not None and (bias.dim() != 2 or bias.size(0) != input.size(0)):
        raise InvalidArgument(f"{name} of {input.size(0)} models takes a bias [B, O]; got {list(bias.shape)}")


def _quick_conv2d(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Size, padding: str | Size, dilation: Size, groups: int
) -> Tensor | None:
    """Compute a convolution that this package does faster than torch on a CPU, channels last; None for others."""
    if input.dim() != 5 or not on_cpu(input) or isinstance(padding, str) or input.size(0) == 0:
        return None
    autocast = torch.is_autocast_enabled("cpu") and torch.float64 not in (input.dtype, weight.dtype)
    if not (input.is_floating_point() and (autocast or input.dtype == weight.dtype)):
        return None
    steps = pair(stride), pair(padding), pair(dilation)
    if not fits(input, weight, *steps, groups):
        return None
    of_channels = groups == input.size(2) == weight.size(1)
    plain = takes_windows(input, weight)
    tap = None
    if is_outer(input, weight, *steps[:2]):
        tap = 0, 0
    elif groups == 1 and not (plain and weight[0].numel() <= FEW_TAPS):
        tap = single_tap(input, weight, *steps)
    products = plain and not of_channels and tap is None
    if products and is_pixel_product(input, weight, *steps[:2], groups):
        flat = ops.pixel_products(input.flatten(3), weight.flatten(2), bias)
        return flat.unflatten(3, input.shape[3:])
    if products and pays_in_windows(input, weight, *steps, groups):
        return ops.window_convolution(input, weight, bias, *steps, groups)
    wide = computable(weight)
    x, b = match(computable(input), wide), match(bias, wide)
    if of_channels:
        # Laid out here, what models share stays shared, and the gradient of the filters need not do it again.
        y = ops.depthwise(channels_last(x).movedim(2, -1), wide.squeeze(2).movedim(1, -1), b, *steps)
    elif tap is not None:
        y = ops.linear(x.movedim(2, -1), _tap(wide, *tap), b)
    elif groups == 1 and (product := whole_map(x, wide, steps[1])) is not None:
        y = ops.linear(*product, b)
    else:
        return None
    return y.movedim(-1, 2).to(torch.get_autocast_dtype("cpu") if autocast else input.dtype)


def _pixels_at(x: Tensor, weight: Tensor, stride: tuple[int, int]) -> Tensor:
    """Return every `stride`-th pixel `[B, N, OH, OW, I]` of images `[B, N, I, H, W]`."""
    pixels = x.movedim(2, -1)
    if stride == (1, 1):
        return pixels
    if takes_windows(x, weight):
        return ops.patches(pixels, (1, 1), stride, (0, 0))  # its gradient is written once
    return pixels[:, :, :: stride[0], :: stride[1]]


class _Tap(torch.autograd.Function):
    """`weight[..., row, column]`, with a gradient in the weight's own memory order that is written once."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, row: int, column: int) -> Tensor:
        ctx.save_for_backward(weight)
        ctx.place = row, column
        return weight[..., row, column]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        whole = torch.zeros_like(ctx.saved_tensors[0])
        whole[(..., *ctx.place)] = grad
        return whole, None, None


def _tap(weight: Tensor, row: int, column: int) -> Tensor:
    watched = torch.compiler.is_compiling() or transforming()
    return weight[..., row, column] if watched else _Tap.apply(weight, row, column)


def _convolution(
    plain: Callable[..., Tensor], dims: int, input: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any
) -> Tensor:
    """Convolve: on a CPU model by model, with the library's best kernel for one model; on a GPU in the fastest way."""
    check_images(input, weight, bias, dims, plain.__name__)
    if isinstance(rest[1], str):
        rest = (rest[0], padding_of(rest[1], weight, rest[0], rest[2]), *rest[2:])
    if is_kept(weight) and input.dim() == dims + 3 and (len(input) > 1 or not is_kept(bias)):
        return _of_shared_filters(plain, dims, input, weight, bias, *rest)
    sample = on_cpu(input) and is_grouped_sample(plain, dims, input, weight, rest[3])
    if sample and pays_as_models(plain, input, weight, rest[3]):
        return _groups_as_models(plain, dims, input, weight, bias, *rest)
    if dims == 1 and on_cpu(input):
        return _as_rows(plain, input, weight, bias, *rest)
    if plain is F.conv2d and (y := _quick_conv2d(input, weight, bias, *rest)) is not None:
        return y
    if plain is F.conv3d and is_pointwise(input, weight, *rest):
        flat = _convolution(F.conv2d, 2, input.flatten(4), weight.squeeze(-1), bias, 1, 0, 1, rest[3])
        return flat.unflatten(4, input.shape[4:])
    if plain is F.conv3d and (y := volume_convolution(input, weight, bias, *rest)) is not None:
        return y
    if plain is F.conv2d and steps_go_wrong(input, weight, *rest):
        input, rest = _pixels_at(input, weight, pair(rest[0])).movedim(-1, 2), (1, *rest[1:])
    if plain is F.conv_transpose2d and is_shared(input):
        input = channels_last(input)  # once: the operators lay out what each model has
    if plain is F.conv_transpose2d and (y := transposed_of_windows(input, weight, bias, *rest)) is not None:
        return y
    if plain is F.conv_transpose2d and (y := from_single_pixels(input, weight, bias, *rest)) is not None:
        return channels_last(y)
    if on_gpu(input) and input.size(0) > 1 and input.dim() == dims + 3:
        return convolve_on_gpu(plain, input, weight, bias, *rest)
    if (dims == 2 or plain is F.conv3d) and input.dim() == dims + 3 and not (sample and lies_whole(input)):
        input = channels_last(input)
    if len(input) == 1:
        y = plain(input.squeeze(0), weight.squeeze(0), None if bias is None else bias.squeeze(0), *rest)
        # No view for autograd: an activation in place behind it would be one of a part, with copies to and fro.
        return unsafe_view(y, (1, *y.shape))
    geometry = _geometry(plain, dims, input, weight, *rest)
    if geometry is None:
        return each_model(lambda x, w, b: plain(x, w, b, *rest), input, weight, bias)
    return convolve_models(input, weight, bias, geometry)


def _groups_as_models(
    plain: Callable[..., Tensor], dims: int, input: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any
) -> Tensor:
    """Convolve the one sample `[B, 1, G * C, *]` of each model as those of B * G models without groups."""
    many = len(input) * rest[3]
    x = input.reshape(many, 1, -1, *input.shape[3:])
    filters, offsets = weight.reshape(many, -1, *weight.shape[2:]), None
    if bias is not None:
        offsets = bias.reshape(many, -1)
    y = _convolution(plain, dims, x, filters, offsets, *rest[:3], 1, *rest[4:])
    return y.reshape(len(input), 1, -1, *y.shape[3:])


def _of_shared_filters(
    plain: Callable[..., Tensor], dims: int, input: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any
) -> Tensor:
    """Convolve the images of all models with filters that they share, in one call; a shared batch once."""
    B = len(input)
    if not is_kept(bias):  # each model's own
        y = _convolution(plain, dims, input, weight, None, *rest)
        return y + bias.reshape(B, 1, -1, *(1,) * dims)  # type: ignore[union-attr]
    filters, offsets = weight[:1], None if bias is None else bias[:1]
    if is_frozen(input):
        return spread(_convolution(plain, dims, input[:1], filters, offsets, *rest), B)
    y = _convolution(plain, dims, folded(input), filters, offsets, *rest)
    return y.view(B, -1, *y.shape[2:])


def _geometry(
    plain: Callable[..., Tensor], dims: int, input: Tensor, weight: Tensor, *rest: Any
) -> ops.ConvolutionGeometry | None:
    """Describe a convolution for `convolve_models`; None if it cannot take it: dtypes to be cast, padding by name."""
    alike = input.dtype == weight.dtype and input.is_floating_point()
    device = input.device.type
    autocast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    if input.dim() != dims + 3 or not alike or autocast:
        return None
    transposed = plain is F.conv_transpose2d or plain is F.conv_transpose3d
    stride, padding, *others = rest
    extra, groups, dilation = others if transposed else (0, others[1], others[0])
    if isinstance(padding, str):
        return None
    sizes = [[s] * dims if isinstance(s, int) else list(s) for s in (stride, padding, dilation, extra)]
    return (*sizes[:3], transposed, sizes[3], groups)


def _as_rows(plain: Callable[..., Tensor], input: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    """Compute a 1-d convolution as one of images of a single row, to use the fast cases of images."""
    if plain is F.conv1d:
        stride, padding, dilation, groups = rest
        across = padding if isinstance(padding, str) else (0, *sizes_of(padding))
        rest = (1, *sizes_of(stride)), across, (1, *sizes_of(dilation)), groups
        plain = F.conv2d
    else:
        stride, padding, output_padding, groups, dilation = rest
        padding, output_padding = (0, *sizes_of(padding)), (0, *sizes_of(output_padding))
        rest = (1, *sizes_of(stride)), padding, output_padding, groups, (1, *sizes_of(dilation))
        plain = F.conv_transpose2d
    return _convolution(plain, 2, input.unsqueeze(-2), weight.unsqueeze(-2), bias, *rest).squeeze(-2)


def channels_last(images: Tensor) -> Tensor:
    """Lay `[B, N, C, *]` out with the channels last in memory, where oneDNN's convolutions and the layers after them
    are faster: 1.9 times for a MobileNet. Shared batches stay shared."""
    if not on_cpu(images):
        return images
    if images.size(0) > 1 and images.stride(0) == 0:
        return channels_last(images[:1]).expand_as(images)
    rows = images.movedim(2, -1).contiguous()
    if 1 in rows.shape and (rows.dtype == torch.float64 or rows.stride(-1) != 1):
        # Sizes of 1 may have strides of their own. Of a single channel torch would take them for the other order; of
        # float64 its convolution in groups has a wrong gradient with them.
        rows = rows.flatten().view(rows.shape)
    return rows.movedim(-1, 2)


def _direct(plain: Callable[..., Tensor], dims: int, shape: str) -> Callable[..., Tensor]:
    def convolve(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Size = 1,
        padding: str | Size = 0,
        dilation: Size = 1,
        groups: int = 1,
    ) -> Tensor:
        return _convolution(plain, dims, input, weight, bias, stride, padding, dilation, groups)

    return named(convolve, plain.__name__, f"of `[B, N, C, {shape}]` or `[B, C, {shape}]`.")


def _transposed(plain: Callable[..., Tensor], dims: int, shape: str) -> Callable[..., Tensor]:
    def convolve(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Size = 1,
        padding: Size = 0,
        output_padding: Size = 0,
        groups: int = 1,
        dilation: Size = 1,
    ) -> Tensor:
        return _convolution(plain, dims, input, weight, bias, stride, padding, output_padding, groups, dilation)

    return named(
        convolve, plain.__name__, f"of `[B, N, C, {shape}]` or `[B, C, {shape}]`; weight `[B, I, O / groups, ...]`."
    )


conv1d, conv2d, conv3d = _direct(F.conv1d, 1, "L"), _direct(F.conv2d, 2, "H, W"), _direct(F.conv3d, 3, "D, H, W")
conv_transpose1d = _transposed(F.conv_transpose1d, 1, "L")
conv_transpose2d = _transposed(F.conv_transpose2d, 2, "H, W")
conv_transpose3d = _transposed(F.conv_transpose3d, 3, "D, H, W")
