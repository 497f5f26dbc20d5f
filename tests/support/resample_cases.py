# SPDX-License-Identifier: MIT
"""Rows of the table of operators: images that are resampled, padded or rearranged, channels last."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from dnnsuite import ops
from operator_case import Case, Tensors, maker


def resample_case(kind: str, sides: tuple[int, int], channels: int, after: tuple[int, int], **torchs: Any) -> Case:
    """3 images resampled to the sides `after`; `torchs`: arguments of torch's `interpolate`."""
    corners = kind.endswith("corners")
    steps = [(n - 1) / (m - 1) if corners else n / m for n, m in zip(sides, after, strict=True)]

    def of_torch(t: Tensors) -> torch.Tensor:
        images = t["x"].movedim(-1, 1)
        found = (
            functional.adaptive_avg_pool2d(images, after)
            if kind == "average"
            else functional.interpolate(images, after, align_corners=corners or None, **torchs)
        )
        return found.movedim(1, -1)

    return Case(
        f"resample-{kind.replace(' ', '-')}-{'x'.join(map(str, (*sides, channels, *after)))}",
        "resample",
        maker((3, *sides), channels, "x", False),
        lambda t: ops.resample(t["x"].movedim(-1, 2), kind, after, steps).movedim(2, -1),
        of_torch,
    )


def pad_case(kind: str, channels: int) -> Case:
    """3 images with repeated pixels around them."""
    left, right, top, bottom = 2, 1, 0, 3
    ours = {"constant": "zero"}.get(kind, kind)

    return Case(
        f"resample-{kind}-{channels}",
        "resample",
        maker((3, 5, 4), channels, "x", False),
        lambda t: ops.resample(t["x"].movedim(-1, 2), ours, (8, 7), before=(top, left)).movedim(2, -1),
        lambda t: functional.pad(t["x"].movedim(-1, 1), (left, right, top, bottom), kind).movedim(1, -1),
    )


def rearranged_case(name: str, parts: tuple[int, ...], order: tuple[int, ...]) -> Case:
    """Images [parts[0], *, C] whose parts are put in another order."""
    images = (parts[0], parts[1] * parts[2], parts[3] * parts[4])
    sizes = (0, *parts)

    def of_torch(t: Tensors) -> torch.Tensor:
        turned = t["x"].movedim(1, -1).reshape(parts).permute([dim - 1 for dim in order[1:]])
        return turned.reshape(images).movedim(-1, 1)

    def make(B: int, dtype: torch.dtype) -> Tensors:
        return {"x": maker(images[:2], images[2], "x", False)(B, dtype)["x"].movedim(-1, 2)}

    return Case(
        f"rearranged-{name}-{'x'.join(str(sizes[dim]) for dim in order[1:])}",
        "rearranged",
        make,
        lambda t: ops.rearranged(t["x"], (t["x"].size(1), *parts[1:]), order, (t["x"].size(1), *images[1:])),
        of_torch,
    )


RESAMPLE_CASES = [
    resample_case("nearest", (5, 4), 3, (10, 3), mode="nearest"),
    resample_case("nearest-exact", (5, 1), 18, (7, 3), mode="nearest-exact"),
    resample_case("linear", (5, 4), 3, (10, 3), mode="bilinear"),
    resample_case("linear corners", (5, 4), 18, (4, 9), mode="bilinear"),
    resample_case("cubic", (3, 4), 2, (5, 9), mode="bicubic"),
    resample_case("cubic corners", (3, 4), 16, (5, 2), mode="bicubic"),
    resample_case("average", (7, 5), 5, (3, 4)),
    resample_case("linear", (30, 500), 16, (40, 640), mode="bilinear"),  # larger than the caches
    *(pad_case(kind, 5) for kind in ("constant", "circular", "replicate", "reflect")),
]
REARRANGED_CASES = [
    rearranged_case("runs", (2, 3, 2, 2, 5), (0, 1, 3, 2, 4, 5)),
    rearranged_case("numbers", (2, 3, 2, 5, 3), (0, 1, 2, 3, 5, 4)),
    rearranged_case("pairs", (2, 3, 2, 2, 9), (0, 1, 2, 3, 5, 4)),
    rearranged_case("blocks", (2, 3, 2, 4, 8), (0, 1, 2, 3, 5, 4)),
    rearranged_case("large blocks", (1, 2, 9, 19, 2), (0, 1, 2, 5, 3, 4)),
    rearranged_case("matrices", (1, 2, 17, 19, 16), (0, 1, 5, 2, 4, 3)),
    rearranged_case("nothing", (2, 3, 2, 2, 5), (0, 1, 2, 3, 4, 5)),
]
