# SPDX-License-Identifier: MIT
"""Colour pictures of 32 x 32 pixels: CIFAR-100 from the user's files, else scikit-learn's digits, else drawn; and in
ten classes CIFAR-10, else the pictures of 28 x 28 that the machine has.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any, NamedTuple

from .._lazy import npt
from .._lazy import numpy as np
from ..errors import InvalidArgument, Unavailable
from . import mnist
from ._origin import Origin, named, root_of

SIDE = 32
# The archive for Python, and the one for C, each as unpacked or lying in the root itself.
FOLDERS = ("cifar-100-python", "cifar-100-binary", ".")
_PARTS = {"train": ("train", "train.bin"), "valid": ("test", "test.bin")}

_PIXELS = 3 * SIDE * SIDE
_SYNTHETIC = {"train": 4096, "valid": 512}
_SYNTHETIC_CLASSES = 100
# All that numpy's arrays need of a pickle; a file with anything else in it is not read.
_HARMLESS = {
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("_codecs", "encode"),
}


class ColourPictures(NamedTuple):
    """Attributes: images: uint8 `[N, 3, 32, 32]`; labels: int64 `[N]`, below `classes`; origin: provenance."""

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int64]
    classes: int
    origin: Origin


def load(kind: str = "auto", dataroot: str | Path | None = None, seed: int = 0, part: str = "train") -> ColourPictures:
    """CIFAR-100 (Krizhevsky 2009) under `dataroot`, in one of `FOLDERS`; else digits; else drawn from `seed`.

    Args:
        kind: `auto` takes the first that there is; `real` refuses to draw any; `synthetic` draws them.
        part: `train` or `valid`.

    Raises:
        InvalidArgument: an unknown kind, a dataroot that is not a folder, a damaged file.
        Unavailable: `real` was asked for and there is none.
    """
    root = root_of(kind, dataroot)
    if kind == "synthetic":
        return _synthetic(seed, part)
    if found := find(root):
        return _read(found, part)
    if table := mnist.digits_file():
        return digits(table, part)
    if kind == "real":
        looked_in = f"{dataroot or 'no dataroot'}, the package scikit-learn"
        raise Unavailable("CIFAR-100's files", looked_in, "unpack cifar-100-python.tar.gz there")
    return _synthetic(seed, part)


def find(root: Path | None) -> Path | None:
    """Return the folder of CIFAR-100's files below `root`; None if there is none."""
    for folder in [root / name for name in FOLDERS] if root else []:
        for form in range(2):
            if all((folder / names[form]).is_file() for names in _PARTS.values()):
                return folder
    return None


def _read(folder: Path, part: str) -> ColourPictures:
    pickled, binary = (folder / name for name in _PARTS[part])
    images, labels = read(pickled if pickled.is_file() else binary, 100)
    origin = Origin.of(named("CIFAR-100", folder), "that of the user's files", images)
    return ColourPictures(images, labels, 100, origin)


def read(path: Path, classes: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Read pictures `[N, 3, 32, 32]` and labels `[N]` of a file of CIFAR-10 or -100, in the form for C (`.bin`) or
    Python.

    Raises:
        InvalidArgument: it is damaged, or something else; the message names it.
    """
    label, before = (b"labels", 1) if classes == 10 else (b"fine_labels", 2)  # after the coarse label
    try:
        if path.suffix == ".bin":
            rows = np.fromfile(path, np.uint8).reshape(-1, before + _PIXELS)
            content = {b"data": rows[:, before:], label: rows[:, before - 1]}
        else:
            content = _ArraysOnly(io.BytesIO(path.read_bytes()), encoding="bytes").load()
        images = np.asarray(content[b"data"], np.uint8).reshape(-1, 3, SIDE, SIDE)
        labels = np.asarray(content[label], np.int64)
    except (OSError, ValueError, KeyError, TypeError, IndexError, EOFError, pickle.UnpicklingError) as error:
        raise InvalidArgument(f"{path} is not a file of CIFAR-{classes}: {error}") from error
    if len(images) != len(labels) or not len(images) or labels.min() < 0 or labels.max() >= classes:
        raise InvalidArgument(
            f"{path} is not a file of CIFAR-{classes}: {len(images)} pictures, {len(labels)} labels, not all of 0 to "
            f"{classes - 1}"
        )
    return images, labels


class _ArraysOnly(pickle.Unpickler):
    """Unpickler that runs no code of the file."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _HARMLESS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no array needs")
        return super().find_class(module, name)


def digits(path: Path, part: str) -> ColourPictures:
    """Read scikit-learn's digits, each of their 8 x 8 pixels as 4 x 4 in three equal colours."""
    small, labels = mnist.small_digits(path, part != "valid")
    images = small[:, None].repeat(4, axis=2).repeat(4, axis=3).repeat(3, axis=1)
    origin = Origin.of("digits of scikit-learn as 32 x 32 x 3", "CC BY 4.0", images)
    return ColourPictures(images, labels.astype(np.int64), 10, origin)


def _synthetic(seed: int, part: str) -> ColourPictures:
    """Draw pictures: each class has coarse patches of colours of its own, and every picture adds noise."""
    key = seed & (2**64 - 1)
    colours = np.random.Generator(np.random.Philox(key=key)).integers(64, 192, (_SYNTHETIC_CLASSES, 3, 4, 4))
    draws = np.random.Generator(np.random.Philox(key=[key, 1 + (part == "valid")]))
    labels = draws.integers(_SYNTHETIC_CLASSES, size=_SYNTHETIC[part])
    images = colours[labels].repeat(8, axis=2).repeat(8, axis=3).astype(np.int16)
    images += draws.integers(-64, 64, images.shape, dtype=np.int16)
    source = f"synthetic: {_SYNTHETIC_CLASSES} classes of colours, seed {seed}"
    pictures = images.astype(np.uint8)
    return ColourPictures(pictures, labels, _SYNTHETIC_CLASSES, Origin.of(source, "none needed", pictures))


CIFAR10_CLASSES = 10

_CHANNELS = 3
CIFAR10_FOLDERS = ("cifar-10-batches-bin", "cifar-10-batches-py", ".")


def load_cifar10(
    kind: str = "auto", dataroot: str | Path | None = None, seed: int = 0, train: bool = True
) -> mnist.Pictures:
    """CIFAR-10 (Krizhevsky, 2009) under `dataroot`, in its binary or its Python form, else what `mnist.load` finds,
    with a margin of 2 and three equal channels: images `[N, 3, 32, 32]`.

    Raises as `mnist.load` does, and InvalidArgument naming a damaged file.
    """
    root = root_of(kind, dataroot)
    names = [f"data_batch_{i}" for i in range(1, 6)] if train else ["test_batch"]
    for folder in [root / name for name in CIFAR10_FOLDERS] if root else []:
        for suffix in (".bin", ""):
            if paths := [folder / f"{name}{suffix}" for name in names if (folder / f"{name}{suffix}").is_file()]:
                images, labels = map(np.concatenate, zip(*(read(path, CIFAR10_CLASSES) for path in paths), strict=True))
                source = named(f"CIFAR-10, {len(paths)} files of {folder.name or folder}", folder)
                origin = Origin.of(source, "that of the user's files", images)
                return mnist.Pictures(images, labels.astype(np.uint8), origin)
    pictures = mnist.load(kind, dataroot, seed, train)
    padded = np.pad(pictures.images, ((0, 0), (2, 2), (2, 2)))
    return mnist.Pictures(padded[:, None].repeat(_CHANNELS, axis=1), pictures.labels, pictures.origin)
