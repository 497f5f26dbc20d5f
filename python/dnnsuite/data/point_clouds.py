# SPDX-License-Identifier: MIT
"""Point clouds with labels, sampled from the surfaces of analytic solids: sixteen shapes, and chairs of four parts."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .._lazy import npt
from .._lazy import numpy as np
from ..errors import InvalidArgument, Unavailable
from ._origin import Origin, root_of

if TYPE_CHECKING:
    Floats = npt.NDArray[np.float32]

CHAIR_PARTS = ("seat", "back", "legs", "arms")

_JITTER = 0.02  # standard deviation, in a cloud of radius 1
_STRETCH = 0.25  # every solid is longer or shorter by as much along each axis
_ROUND = tuple((math.sin(math.pi * i / 16), math.cos(math.pi * i / 16)) for i in range(17))  # a half circle
_BENT = tuple((1 + 0.35 * math.sin(math.pi * i / 8), 0.35 * math.cos(math.pi * i / 8)) for i in range(17))

# A line (radius, height) that turns about the y axis.
_TURNED: dict[str, Sequence[tuple[float, float]]] = {
    "sphere": _ROUND,
    "hemisphere": (*_ROUND[:9], (0.0, 0.0)),
    "capsule": (*((0.5 * r, 0.5 * h + 0.7) for r, h in _ROUND[:9]), *((0.5 * r, 0.5 * h - 0.7) for r, h in _ROUND[8:])),
    "cylinder": ((0, 1), (0.6, 1), (0.6, -1), (0, -1)),
    "tube": ((0.6, 1), (0.6, -1)),
    "cone": ((0, 1), (0.8, -1), (0, -1)),
    "hourglass": ((0, 1), (0.8, 1), (0, 0), (0.8, -1), (0, -1)),
    "bucket": ((0.9, 0.8), (0.5, -0.8), (0, -0.8)),
    "disc": ((0, 0.05), (1, 0.05), (1, -0.05), (0, -0.05)),
    "torus": _BENT,
}  # fmt: skip
# Boxes: centre and size.
_BOXES: dict[str, Sequence[tuple[tuple[float, float, float], tuple[float, float, float]]]] = {
    "box": (((0, 0, 0), (1.2, 1.2, 1.2)),),
    "cross": (((0, 0, 0), (2, 0.5, 0.5)), ((0, 0, 0), (0.5, 2, 0.5)), ((0, 0, 0), (0.5, 0.5, 2))),
    "corner": (((0, -0.8, 0), (2, 0.4, 0.8)), ((-0.8, 0.2, 0), (0.4, 1.6, 0.8))),
    "stairs": tuple(((0.5 * i - 0.75, -0.75 + 0.25 * i, 0), (0.5, 0.5 + 0.5 * i, 1.0)) for i in range(4)),
    "table": (
        ((0, 0.6, 0), (2, 0.15, 1.4)),
        *(((x, -0.2, z), (0.15, 1.5, 0.15)) for x in (-0.9, 0.9) for z in (-0.6, 0.6)),
    ),
    "frame": (
        ((0, 0.8, 0), (2, 0.25, 0.3)), ((0, -0.8, 0), (2, 0.25, 0.3)),
        ((0.9, 0, 0), (0.25, 1.4, 0.3)), ((-0.9, 0, 0), (0.25, 1.4, 0.3)),
    ),
}  # fmt: skip
SOLIDS = tuple(sorted((*_TURNED, *_BOXES)))


class Clouds(NamedTuple):
    """Attributes: points: float32 `[T, 3, P]`; labels: int64 `[T]`, or of each point `[T, P]`; origin."""

    points: Floats
    labels: npt.NDArray[np.int64]
    origin: Origin


def solids(kind: str = "auto", count: int = 1024, points: int = 2500, seed: int = 0) -> Clouds:
    """`count` clouds of the sixteen `SOLIDS`, whose places in it are the labels `[T]`.

    Each is stretched along its axes, turned about y, shaken by 0.02, centred and scaled to radius 1.

    Raises InvalidArgument for a kind that is none or a size below one, Unavailable if `real` was asked for.
    """
    return _clouds(kind, count, points, seed, _solid, f"clouds of {len(SOLIDS)} analytic solids")


def chairs(kind: str = "auto", count: int = 256, points: int = 2500, seed: int = 0) -> Clouds:
    """`count` clouds of chairs made of boxes, each of its own proportions; labels `[T, P]` are places in `CHAIR_PARTS`.

    Raises as `solids` does.
    """
    return _clouds(kind, count, points, seed, _chair, "clouds of chairs made of boxes, labelled by part")


def _clouds(
    kind: str, count: int, points: int, seed: int, draw: Callable[..., tuple[Floats, Floats | int]], what: str
) -> Clouds:
    root_of(kind, None)
    if kind == "real":
        raise Unavailable("real point clouds", "", "name the folder of ShapeNet part: --dataroot DIR")
    if count < 1 or points < 1:
        raise InvalidArgument(f"point clouds need at least one cloud and one point, got {count} of {points}")
    rng = np.random.Generator(np.random.Philox(key=seed & (2**64 - 1)))
    made = [draw(rng, i, points) for i in range(count)]
    cloud = np.stack([_finished(xyz, rng) for xyz, _ in made])
    labels = np.stack([np.asarray(label, np.int64) for _, label in made])
    origin = Origin(
        f"synthetic: {what}, seed {seed}", "none needed", count, hashlib.sha256(cloud.tobytes()).hexdigest()
    )
    return Clouds(cloud, labels, origin)


def _solid(rng: np.random.Generator, i: int, points: int) -> tuple[Floats, int]:
    label = i % len(SOLIDS)
    name = SOLIDS[label]
    return (_turned(_TURNED[name], rng, points) if name in _TURNED else _boxes(_BOXES[name], rng, points)[0]), label


def _chair(rng: np.random.Generator, i: int, points: int) -> tuple[Floats, Floats]:
    width, depth = rng.uniform(0.8, 1.3, 2)
    leg, back, arm = rng.uniform(0.6, 1.2), rng.uniform(0.7, 1.3), rng.uniform(0.2, 0.5)
    thin = rng.uniform(0.08, 0.18)
    legs = [((x, -leg / 2, z), (thin, leg, thin)) for x in (-width / 2, width / 2) for z in (-depth / 2, depth / 2)]
    arms = [((x, arm, 0.0), (thin, thin, depth)) for x in (-width / 2, width / 2)]
    boxes = [((0, 0, 0), (width, thin, depth)), ((0, back / 2, -depth / 2), (width, back, thin)), *legs, *arms]
    xyz, which = _boxes(boxes, rng, points)
    return xyz, np.array([0, 1, 2, 2, 2, 2, 3, 3])[which]


def _turned(line: Sequence[tuple[float, float]], rng: np.random.Generator, points: int) -> Floats:
    """Points `[P, 3]`, evenly over the surface that `line` sweeps as it turns about y."""
    ends = np.array(line, dtype=np.float64)
    (r0, h0), (r1, h1) = ends[:-1].T, ends[1:].T
    piece = _chosen(np.hypot(r1 - r0, h1 - h0) * (r0 + r1), rng, points)
    a, b, t = r0[piece], r1[piece], rng.random(points)
    # The circle's length grows with the radius: the place along the piece has density a + (b - a) t.
    root = np.sqrt(a**2 + t * (b**2 - a**2))
    along = np.where(np.abs(b - a) > 1e-9, (root - a) / np.where(np.abs(b - a) > 1e-9, b - a, 1.0), t)
    radius, angle = a + along * (b - a), 2 * np.pi * rng.random(points)
    height = h0[piece] + along * (h1 - h0)[piece]
    return np.stack([radius * np.cos(angle), height, radius * np.sin(angle)], axis=1).astype(np.float32)


def _boxes(
    boxes: Sequence[tuple[Sequence[float], Sequence[float]]], rng: np.random.Generator, points: int
) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Points `[P, 3]`, evenly over the faces of the boxes, and the box of each `[P]`."""
    centres, sizes = (np.array([box[part] for box in boxes], dtype=np.float64) for part in (0, 1))
    faces = np.stack([sizes[:, 1] * sizes[:, 2], sizes[:, 0] * sizes[:, 2], sizes[:, 0] * sizes[:, 1]], axis=1)
    box, axis = np.divmod(_chosen(faces.ravel(), rng, points), 3)
    place = rng.random((points, 3)) - 0.5
    place[np.arange(points), axis] = np.where(rng.random(points) < 0.5, -0.5, 0.5)
    return (centres[box] + place * sizes[box]).astype(np.float32), box


def _chosen(areas: npt.NDArray[np.float64], rng: np.random.Generator, points: int) -> npt.NDArray[np.int64]:
    edges = np.cumsum(areas)
    return np.minimum(np.searchsorted(edges, rng.random(points) * edges[-1], side="right"), len(areas) - 1)


def _finished(xyz: Floats, rng: np.random.Generator) -> Floats:
    """Return a cloud `[P, 3]` stretched, turned, shaken, centred and scaled, as `[3, P]`."""
    stretched = xyz * rng.uniform(1 - _STRETCH, 1 + _STRETCH, 3)
    centred = stretched - stretched.mean(0)
    centred /= np.linalg.norm(centred, axis=1).max() + 1e-9
    angle = 2 * np.pi * rng.random()
    cos, sin = np.cos(angle), np.sin(angle)
    turn = np.array([[cos, 0, sin], [0, 1, 0], [-sin, 0, cos]])
    return np.ascontiguousarray((centred @ turn + rng.normal(scale=_JITTER, size=xyz.shape)).T, dtype=np.float32)
