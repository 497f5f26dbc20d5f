# SPDX-License-Identifier: MIT
"""Point clouds with labels: of ShapeNet part (Yi et al., SIGGRAPH Asia 2016), the class of a shape and the part of each
point, or sampled from the surfaces of analytic solids: sixteen shapes, and chairs of four parts.

ShapeNet's folder is as its authors publish it, and as PointNet's scripts read it:

    synsetoffset2category.txt                               lines of a category's name and its folder
    train_test_split/shuffled_{train,val,test}_file_list.json   "shape_data/FOLDER/SHAPE"
    FOLDER/points/SHAPE.pts                                 lines of x y z
    FOLDER/points_label/SHAPE.seg                           a line for each point: its part, counted from 1
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .._lazy import npt, torch
from .._lazy import numpy as np
from ..errors import InvalidArgument, Unavailable, did_you_mean
from ._origin import Origin, named, root_of
from .batches import ArrayBatches

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
    return Clouds(cloud, labels, Origin.of(f"synthetic: {what}, seed {seed}", "none needed", cloud))


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


SHAPENET_FOLDERS = (".", "shapenetcore_partanno_segmentation_benchmark_v0")

_CATEGORIES = "synsetoffset2category.txt"
_SPLITS = "train_test_split/shuffled_{}_file_list.json"
# Files that a complete folder has.
SHAPENET_MARKS = (_CATEGORIES, *(_SPLITS.format(split) for split in ("train", "val", "test")))

_MOST_CATEGORIES = 16
_JITTER = 0.02  # standard deviation, in a cloud of radius 1


class Shapes(NamedTuple):
    """Shapes of one part of the data, which lie in files.

    Attributes: points, parts: files of each; labels: places of their categories among the sorted ones; split; origin.
    """

    points: list[Path]
    parts: list[Path]
    labels: list[int]
    split: str
    origin: Origin


def load_shapes(
    kind: str, dataroot: str | Path | None, split: str = "train", category: str | None = None
) -> Shapes | None:
    """List the shapes under `dataroot`; None if no real ones are wanted, or without a dataroot.

    Args:
        kind: `auto`, `real` or `synthetic`.
        split: train, val or test.
        category: the only one, as "Chair"; all by default.

    Raises:
        InvalidArgument: the folder does not hold them, or a file is damaged or missing, by its name.
        Unavailable: `real` was asked for without a dataroot.
    """
    root = root_of(kind, dataroot)
    if root is None:
        if kind == "real":
            raise Unavailable("ShapeNet part", "no dataroot", "name its folder: --dataroot DIR")
        return None
    folder = next((root / name for name in SHAPENET_FOLDERS if (root / name / _CATEGORIES).is_file()), None)
    if folder is None:
        raise InvalidArgument(
            f"dataroot {str(root)!r} has no ShapeNet part; looked for {_CATEGORIES} in it and in {SHAPENET_FOLDERS[1]}"
        )
    folders = _categories(folder / _CATEGORIES)
    if category is not None and category not in folders:
        raise InvalidArgument(f"{folder / _CATEGORIES} has no category {category!r}{did_you_mean(category, folders)}")
    names = sorted(folders if category is None else [category])
    return _listed(folder, folder / _SPLITS.format(split), names, folders, split)


def shape_batches(shapes: Shapes, points: int, batch_size: int, seed: int, of_parts: int = 0) -> ArrayBatches:
    """Clouds `[N, 3, points]`, read as they are needed, and their categories `[N]`.

    Each is drawn from its shape with replacement, centred and scaled to radius 1; for training it is turned about y and
    shaken by 0.02.

    Args:
        of_parts: number of parts; labels are then parts `[N, points]`, counted from 0, instead of categories.
    """
    train = shapes.split == "train"

    def prepare(generator: torch.Generator, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        clouds = [_cloud(shapes, row, points, of_parts, train, generator) for row in rows.tolist()]
        xyz, parts = (torch.stack(each) for each in zip(*clouds, strict=True))
        return xyz, parts if of_parts else torch.tensor([shapes.labels[row] for row in rows.tolist()])

    return ArrayBatches(
        torch.arange(len(shapes.points)), batch_size=batch_size, seed=seed, record=shapes.origin.record(),
        prepare=prepare,
    )  # fmt: skip


def _categories(path: Path) -> dict[str, str]:
    """Folders by category."""
    lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not lines or any(len(line) != 2 for line in lines):
        raise InvalidArgument(f"{path} should have lines of a category's name and its folder: it is damaged")
    if len(lines) > _MOST_CATEGORIES:
        raise InvalidArgument(f"{path} has {len(lines)} categories; ShapeNet part has {_MOST_CATEGORIES}")
    return {line[0]: line[1] for line in lines}


def _listed(folder: Path, path: Path, names: list[str], folders: dict[str, str], split: str) -> Shapes:
    try:
        text = path.read_bytes()
        entries = [str(entry).split("/")[-2:] for entry in json.loads(text)]
    except (OSError, ValueError, TypeError) as error:
        raise InvalidArgument(f"{path} cannot be read: {error}") from error
    labels = {folders[name]: i for i, name in enumerate(names)}
    chosen = [entry for entry in entries if entry[0] in labels and len(entry) == 2]
    if not chosen:
        raise InvalidArgument(f"{path} lists no shape of {', '.join(names)}")
    points, parts = (
        [folder / category / room / f"{shape}{end}" for category, shape in chosen]
        for room, end in (("points", ".pts"), ("points_label", ".seg"))
    )
    if missing := [path for path in (*points, *parts) if not path.is_file()]:
        raise InvalidArgument(
            f"{len(missing)} files that {path.name} lists are missing, first {missing[0]}: it was not unpacked whole"
        )
    of = f"{len(names)} categories" if len(names) > 1 else names[0]
    origin = Origin(
        named(f"ShapeNet part, {split}, {of}", folder),
        "ShapeNet's terms of use",
        len(chosen),
        hashlib.sha256(text).hexdigest(),
    )
    return Shapes(points, parts, [labels[category] for category, _ in chosen], split, origin)


def _cloud(
    shapes: Shapes, i: int, points: int, of_parts: int, train: bool, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """One cloud `[3, points]`, and the part of each of its points."""
    xyz = torch.from_numpy(_numbers(shapes.points[i], 3))
    chosen = torch.randint(len(xyz), (points,), generator=generator)
    cloud = _centred(xyz[chosen], train, generator)
    return cloud, _parts(shapes, i, len(xyz), of_parts)[chosen] if of_parts else chosen


def _parts(shapes: Shapes, i: int, count: int, of_parts: int) -> torch.Tensor:
    path = shapes.parts[i]
    parts = torch.from_numpy(_numbers(path, 1)).long().flatten() - 1
    if len(parts) != count:
        raise InvalidArgument(
            f"{path} has {len(parts)} parts for {count} points of {shapes.points[i].name}: it is damaged"
        )
    if parts.min() < 0 or parts.max() >= of_parts:
        raise InvalidArgument(f"{path} has parts {int(parts.min()) + 1} to {int(parts.max()) + 1}, not 1 to {of_parts}")
    return parts


def _numbers(path: Path, columns: int) -> npt.NDArray[Any]:
    try:
        found = np.loadtxt(path, dtype=np.float32, ndmin=2)
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{path} cannot be read: {error}") from error
    if found.ndim != 2 or not len(found) or found.shape[1] != columns or not np.isfinite(found).all():
        raise InvalidArgument(f"{path} should have lines of {columns} finite numbers: it is damaged")
    return found


def _centred(xyz: torch.Tensor, train: bool, generator: torch.Generator) -> torch.Tensor:
    """Return a cloud `[P, 3]` centred and scaled, and for training turned and shaken, as `[3, P]`."""
    xyz = xyz - xyz.mean(0)
    xyz = xyz / xyz.norm(dim=1).max().clamp_min(1e-9)
    if train:
        angle = 2 * math.pi * torch.rand((), generator=generator)
        turn = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()]).view(2, 2)
        xyz[:, [0, 2]] = xyz[:, [0, 2]] @ turn
        xyz = xyz + _JITTER * torch.randn(xyz.shape, generator=generator)
    return xyz.T.contiguous()
