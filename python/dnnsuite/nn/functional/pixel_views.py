# SPDX-License-Identifier: MIT
"""Copies of views of images whose channels lie last in memory, as a user's own shuffles make them; the channels lie
last in the copy, too."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise

from torch import Tensor

from ... import ops
from ...ops.memory_order import memory_order, way_back


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
