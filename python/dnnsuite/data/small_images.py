# SPDX-License-Identifier: MIT
"""Images of 32 x 32 in ten classes: the user's CIFAR-10, else the pictures of 28 x 28 that the machine has."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path
from typing import Any, NamedTuple

from .._lazy import npt
from .._lazy import numpy as np
from ..errors import InvalidArgument
from . import mnist
from ._origin import Origin, named, root_of

CLASSES = 10

_SIDE, _CHANNELS = 32, 3
_PIXELS = _CHANNELS * _SIDE * _SIDE
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
        for suffix, read in ((".bin", _binary), ("", _pickled)):
            if paths := [folder / f"{name}{suffix}" for name in names if (folder / f"{name}{suffix}").is_file()]:
                images, labels = map(np.concatenate, zip(*map(read, paths), strict=True))
                digest = hashlib.sha256(images.tobytes()).hexdigest()
                source = named(f"CIFAR-10, {len(paths)} files of {folder.name or folder}", folder)
                return Images(images, labels, Origin(source, "that of the user's files", len(images), digest))
    pictures = mnist.load(kind, dataroot, seed, train)
    padded = np.pad(pictures.images, ((0, 0), (2, 2), (2, 2)))
    return Images(padded[:, None].repeat(_CHANNELS, axis=1), pictures.labels, pictures.origin)


def _binary(path: Path) -> tuple[Any, Any]:
    """Rows of a label and its pixels."""
    content = np.fromfile(path, np.uint8)
    if not len(content) or len(content) % (1 + _PIXELS):
        raise InvalidArgument(
            f"{path} has {len(content)} bytes, no whole number of rows of {1 + _PIXELS}: it is damaged"
        )
    rows = content.reshape(-1, 1 + _PIXELS)
    return _checked(path, rows[:, 1:], rows[:, 0])


def _pickled(path: Path) -> tuple[Any, Any]:
    try:
        with path.open("rb") as file:
            values = _Arrays(file, encoding="bytes").load()
        return _checked(path, values[b"data"], values[b"labels"])
    except (pickle.UnpicklingError, EOFError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidArgument(f"{path} is not a file of CIFAR-10: {error}") from error


def _checked(path: Path, pixels: Any, labels: Any) -> tuple[Any, Any]:
    pixels, labels = np.asarray(pixels, np.uint8), np.asarray(labels, np.uint8)
    if pixels.shape != (len(labels), _PIXELS) or labels.max(initial=0) >= CLASSES:
        raise InvalidArgument(f"{path} has pixels {list(pixels.shape)} for {len(labels)} labels: it is damaged")
    return pixels.reshape(-1, _CHANNELS, _SIDE, _SIDE), labels


class _Arrays(pickle.Unpickler):
    """Unpickler of arrays of numpy; refuses anything that could run."""

    def find_class(self, module: str, name: str) -> Any:
        of_numpy = module.split(".")[0] == "numpy" and name in ("_reconstruct", "ndarray", "dtype")
        if of_numpy or (module, name) == ("_codecs", "encode"):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which an array of pixels does not need")
