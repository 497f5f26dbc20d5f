# SPDX-License-Identifier: MIT
"""Pools of volumes on a CPU as pools of their planes, then along their depth: with the channels last in memory that
takes a fifth to two thirds of the time of torch's pools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...ops.device import on_cpu
from ._volumes import triple

FEW_NUMBERS = 16384
"""Elements of one model up to which torch's single call is faster (`benchmarks/ops/grid.py`)."""

FEW_MAXIMA, VECTOR = 786_432, 16
"""Elements of all models up to which torch's single max pool is faster: of channels that fill a vector, where it takes
half to nine tenths of the time. Of fewer channels it takes twice the time."""

Pool = Callable[..., Tensor]


def lies_last(input: Tensor) -> bool:
    """Return True for large volumes `[B, N, C, D, H, W]` whose channels, several, are last in memory."""
    known = input.dim() == 6 and input.size(0) > 0 and input.dtype in (torch.float32, torch.float64)
    if not (known and on_cpu(input)) or input[0].numel() <= FEW_NUMBERS:
        return False
    return not input[0].is_contiguous() and input[0].movedim(1, -1).is_contiguous()


def has_few_maxima(input: Tensor) -> bool:
    """Return True for volumes `[B, N, C, D, H, W]` of which torch's max pool is faster, channels last."""
    return input.dim() == 6 and input.size(2) >= VECTOR and input.numel() <= FEW_MAXIMA


def by_planes(pool: Pool, input: Tensor, *sizes: Any, **options: Any) -> Tensor | None:
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
