# SPDX-License-Identifier: MIT
"""Square parts of photographs, to train a generator of images on."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from .._lazy import Image, npt
from .._lazy import numpy as np
from ..errors import Unavailable
from . import lsun, photographs
from ._origin import Origin, named, root_of

_AT_MOST = 20_000  # pictures of a user's folder: 240 MB of 64 x 64


class Crops(NamedTuple):
    """Attributes: images: uint8 `[N, 3, S, S]`; origin: where they came from."""

    images: npt.NDArray[np.uint8]
    origin: Origin


def load(
    kind: str = "auto", dataroot: str | Path | None = None, size: int = 64, count: int = 512, seed: int = 0
) -> Crops:
    """Load the middles of the user's pictures, with the shorter side scaled to `size`: LSUN's, or those in `dataroot`
    or the folders in it; else `count` random parts of the photographs that packages ship, else of noise with their
    statistics.

    Raises:
        InvalidArgument: an unknown kind, a dataroot that is no folder, a picture that cannot be decoded.
        Unavailable: `real` was asked for and there is none.
    """
    root = root_of(kind, dataroot)
    rng = np.random.Generator(np.random.Philox(key=seed & (2**64 - 1)))
    if root and (bedrooms := lsun.find(root)):
        images = [_middle(picture, size) for picture in lsun.pictures(bedrooms, _AT_MOST)]
        return _crops(images, named(f"LSUN bedroom, {bedrooms}", bedrooms), "for research, as its authors say")
    folders = [root, *sorted(path for path in root.iterdir() if path.is_dir())] if root else []
    own = [path for folder in folders for path in photographs.files(folder)][:_AT_MOST]
    if own:
        images = [_middle(photographs.decode(path), size) for path in own]
        return _crops(images, f"pictures of {root}", "that of the user's files")
    shipped = None if kind == "synthetic" else photographs.shipped()
    if shipped:
        pictures = [photographs.decode(path) for path in shipped[0]]
        images = [_part(pictures[i % len(pictures)], size, rng) for i in range(count)]
        return _crops(images, f"parts of {shipped[1].source}", shipped[1].licence)
    if kind == "real":
        raise Unavailable(
            "photographs",
            f"{dataroot or 'no dataroot'}, the packages scikit-image and scikit-learn",
            "give a dataroot with .jpg or .png files",
        )
    noise = photographs.Noise(seed)
    return _crops(
        [noise.picture(size, size) for _ in range(count)], f"synthetic: 1/f noise, seed {seed}", "none needed"
    )


def _crops(images: list[npt.NDArray[np.uint8]], source: str, licence: str) -> Crops:
    stacked = np.ascontiguousarray(np.stack(images).transpose(0, 3, 1, 2))
    return Crops(stacked, Origin(source, licence, len(images), hashlib.sha256(stacked.tobytes()).hexdigest()))


def _middle(picture: Image.Image, size: int) -> npt.NDArray[np.uint8]:
    """`[S, S, 3]`: the largest square in the middle of a picture."""
    side = min(picture.size)
    left, top = ((length - side) // 2 for length in picture.size)
    return _scaled(picture, (left, top, left + side, top + side), size)


def _part(picture: Image.Image, size: int, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """`[S, S, 3]`: a square somewhere in a picture, a third of its shorter side or more."""
    side = int(min(picture.size) * rng.uniform(1 / 3, 1))
    left, top = (int(rng.integers(length - side + 1)) for length in picture.size)
    return _scaled(picture, (left, top, left + side, top + side), size)


def _scaled(picture: Image.Image, box: tuple[int, int, int, int], size: int) -> npt.NDArray[np.uint8]:
    return np.asarray(picture.resize((size, size), box=box), np.uint8)
