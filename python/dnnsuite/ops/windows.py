# SPDX-License-Identifier: MIT
"""Windows that filters and pools see."""

import math
from collections.abc import Sequence

from torch import Tensor

Sizes = Sequence[int]


def output_side(input: int, kernel: int, stride: int, padding: int, dilation: int = 1) -> int:
    """Count the windows along one side of an image."""
    return (input + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def output_pixels(sides: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes = (1, 1)) -> int:
    """Number of windows of an image: pixels that come out of a convolution."""
    ends = zip(sides, kernel, stride, padding, dilation, strict=True)
    return math.prod([output_side(*end) for end in ends])  # a list: torch.compile knows it


def of_sides(grad: Tensor, height: int, width: int) -> Tensor:
    """Make a tensor like images `[B, N, *, *, C]`, with these sides."""
    return grad.new_empty(*grad.shape[:2], height, width, grad.shape[4])
