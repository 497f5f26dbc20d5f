# SPDX-License-Identifier: MIT
"""Convolution as functions: weights `[B, O, I / groups, *]`, biases `[B, O]`, each model its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from ...errors import InvalidArgument
from ._models import each_model

Size = int | Sequence[int]


def check_images(input: Tensor, weight: Tensor, bias: Tensor | None, dims: int, name: str) -> None:
    """Refuses what is not `[B, N, C, *]` or `[B, C, *]`, and weights of another number of models."""
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


def _convolution(
    plain: Callable[..., Tensor], dims: int, input: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any
) -> Tensor:
    """torch's convolution model by model: the library's best kernel for one model, and its bits."""
    check_images(input, weight, bias, dims, plain.__name__)
    return each_model(lambda x, w, b: plain(x, w, b, *rest), input, weight, bias)


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: str | Size = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """`torch.nn.functional.conv1d` of `[B, N, C, L]` or `[B, C, L]`."""
    return _convolution(F.conv1d, 1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: str | Size = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """`torch.nn.functional.conv2d` of `[B, N, C, H, W]` or `[B, C, H, W]`."""
    return _convolution(F.conv2d, 2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: str | Size = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """`torch.nn.functional.conv3d` of `[B, N, C, D, H, W]` or `[B, C, D, H, W]`."""
    return _convolution(F.conv3d, 3, input, weight, bias, stride, padding, dilation, groups)


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    groups: int = 1,
    dilation: Size = 1,
) -> Tensor:
    """`torch.nn.functional.conv_transpose1d` of `[B, N, C, L]` or `[B, C, L]`; weight `[B, I, O / groups, K]`."""
    rest = (stride, padding, output_padding, groups, dilation)
    return _convolution(F.conv_transpose1d, 1, input, weight, bias, *rest)


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    groups: int = 1,
    dilation: Size = 1,
) -> Tensor:
    """`torch.nn.functional.conv_transpose2d` of `[B, N, C, H, W]` or `[B, C, H, W]`."""
    rest = (stride, padding, output_padding, groups, dilation)
    return _convolution(F.conv_transpose2d, 2, input, weight, bias, *rest)


def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    groups: int = 1,
    dilation: Size = 1,
) -> Tensor:
    """`torch.nn.functional.conv_transpose3d` of `[B, N, C, D, H, W]` or `[B, C, D, H, W]`."""
    rest = (stride, padding, output_padding, groups, dilation)
    return _convolution(F.conv_transpose3d, 3, input, weight, bias, *rest)
