# SPDX-License-Identifier: MIT
"""Lines and images with the channels last that are upsampled, padded or averaged by this package's operator, and
volumes that are upsampled. torch's functions know that order for some modes of images only, are slow for volumes of few
channels, and copy lines and what they pad."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ... import ops
from ...ops.device import on_cpu
from ...ops.shared import is_shared

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
