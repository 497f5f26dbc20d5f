# SPDX-License-Identifier: MIT
"""Windows that filters and pools see."""


def output_side(input: int, kernel: int, stride: int, padding: int, dilation: int = 1) -> int:
    """Count the windows along one side of an image."""
    return (input + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
