# SPDX-License-Identifier: MIT
"""Pixels and channels of images `[B, N, C, H, W]` in another order, the channels last in memory before and after."""

from __future__ import annotations

import math

from torch import Tensor

from ... import ops
from ...ops.shared import once


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
