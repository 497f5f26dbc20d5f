# SPDX-License-Identifier: MIT
"""Images of 32 x 32 in ten classes: the user's CIFAR-10, else the pictures of 28 x 28 that the machine has."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from .._lazy import npt
from .._lazy import numpy as np
from . import cifar, mnist
from ._origin import Origin, named, root_of

CLASSES = 10

_CHANNELS = 3
FOLDERS = ("cifar-10-batches-bin", "cifar-10-batches-py", ".")


class Images(NamedTuple):
    """Attributes: images: uint8 `[N, 3, 32, 32]`; labels: uint8 `[N]`; origin: where they came from."""

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.uint8]
    origin: Origin


def load(kind: str = "auto", dataroot: str | Path | None = None, seed: int = 0, train: bool = True) -> Images:
    """CIFAR-10 (Krizhevsky, 2009) under `dataroot`, in its binary or its Python form, else what `mnist.load` finds,
    with a margin of 2 and three equal channels.

    Raises as `mnist.load` does, and InvalidArgument naming a damaged file.
    """
    root = root_of(kind, dataroot)
    names = [f"data_batch_{i}" for i in range(1, 6)] if train else ["test_batch"]
    for folder in [root / name for name in FOLDERS] if root else []:
        for suffix in (".bin", ""):
            if paths := [folder / f"{name}{suffix}" for name in names if (folder / f"{name}{suffix}").is_file()]:
                images, labels = map(np.concatenate, zip(*(cifar.read(path, CLASSES) for path in paths), strict=True))
                digest = hashlib.sha256(images.tobytes()).hexdigest()
                source = named(f"CIFAR-10, {len(paths)} files of {folder.name or folder}", folder)
                return Images(
                    images, labels.astype(np.uint8), Origin(source, "that of the user's files", len(images), digest)
                )
    pictures = mnist.load(kind, dataroot, seed, train)
    padded = np.pad(pictures.images, ((0, 0), (2, 2), (2, 2)))
    return Images(padded[:, None].repeat(_CHANNELS, axis=1), pictures.labels, pictures.origin)
