# SPDX-License-Identifier: MIT
"""Point clouds of ShapeNet part (Yi et al., SIGGRAPH Asia 2016): the class of a shape, and the part of each point.

The folder is as its authors publish it, and as PointNet's scripts read it:

    synsetoffset2category.txt                               lines of a category's name and its folder
    train_test_split/shuffled_{train,val,test}_file_list.json   "shape_data/FOLDER/SHAPE"
    FOLDER/points/SHAPE.pts                                 lines of x y z
    FOLDER/points_label/SHAPE.seg                           a line for each point: its part, counted from 1
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

from .._lazy import npt, torch
from .._lazy import numpy as np
from ..errors import InvalidArgument, Unavailable, did_you_mean
from ._origin import Origin, named, root_of
from .batches import ArrayBatches

FOLDERS = (".", "shapenetcore_partanno_segmentation_benchmark_v0")

_CATEGORIES = "synsetoffset2category.txt"
_SPLITS = "train_test_split/shuffled_{}_file_list.json"
# Files that a complete folder has.
MARKS = (_CATEGORIES, *(_SPLITS.format(split) for split in ("train", "val", "test")))

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


def load(kind: str, dataroot: str | Path | None, split: str = "train", category: str | None = None) -> Shapes | None:
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
    folder = next((root / name for name in FOLDERS if (root / name / _CATEGORIES).is_file()), None)
    if folder is None:
        raise InvalidArgument(
            f"dataroot {str(root)!r} has no ShapeNet part; looked for {_CATEGORIES} in it and in {FOLDERS[1]}"
        )
    folders = _categories(folder / _CATEGORIES)
    if category is not None and category not in folders:
        raise InvalidArgument(f"{folder / _CATEGORIES} has no category {category!r}{did_you_mean(category, folders)}")
    names = sorted(folders if category is None else [category])
    return _listed(folder, folder / _SPLITS.format(split), names, folders, split)


def batches(shapes: Shapes, points: int, batch_size: int, seed: int, of_parts: int = 0) -> ArrayBatches:
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
    cloud = _finished(xyz[chosen], train, generator)
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


def _finished(xyz: torch.Tensor, train: bool, generator: torch.Generator) -> torch.Tensor:
    """Return a cloud `[P, 3]` centred and scaled, and for training turned and shaken, as `[3, P]`."""
    xyz = xyz - xyz.mean(0)
    xyz = xyz / xyz.norm(dim=1).max().clamp_min(1e-9)
    if train:
        angle = 2 * math.pi * torch.rand((), generator=generator)
        turn = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()]).view(2, 2)
        xyz[:, [0, 2]] = xyz[:, [0, 2]] @ turn
        xyz = xyz + _JITTER * torch.randn(xyz.shape, generator=generator)
    return xyz.T.contiguous()
