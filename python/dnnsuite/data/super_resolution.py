# SPDX-License-Identifier: MIT
"""Pictures and smaller versions of them: the luminance of BSDS500 (Arbelaez et al. 2011), or of other photographs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from .._lazy import Image, npt, torch
from .._lazy import numpy as np
from ..errors import InvalidArgument, Unavailable
from . import photographs
from ._origin import Origin, named, root_of

# Where `train` and `test` are, from the archive's own folder to mila-iqia/training's.
FOLDERS = (
    ".", "images", "data/images", "BSDS500/data/images", "BSR/BSDS500/data/images",
    "bsds500/BSR/BSDS500/data/images",
)  # fmt: skip

_MOST = 1024  # they are held in memory
_SYNTHETIC_TRAIN, _SYNTHETIC_TEST = 64, 8
_EIGHTH = 8  # where nobody has parted them, one of so many is for testing


class Pairs(NamedTuple):
    """Attributes: low: uint8 `[N, crop / factor, crop / factor]`; high: uint8 `[N, crop, crop]`."""

    low: npt.NDArray[np.uint8]
    high: npt.NDArray[np.uint8]


def load(
    kind: str = "auto",
    dataroot: str | Path | None = None,
    factor: int = 2,
    crop: int = 256,
    seed: int = 0,
    threads: int = 1,
) -> tuple[Pairs, Pairs, Origin]:
    """Load training and test pairs, decoded by `threads`.

    `auto` takes BSDS500 under `dataroot` (in one of `FOLDERS`) or the pictures that are directly in it, of each the
    centre (1024 of them at most); else tiles of the photographs that a package ships; else noise from `seed`.
    `crop` is made smaller until `factor` divides it.

    Raises:
        InvalidArgument: an unknown kind, a dataroot that is not a folder, a file that cannot be decoded, a bad factor.
        Unavailable: `real` was asked for and there is none.
    """
    if not 1 <= factor <= crop:
        raise InvalidArgument(f"upscale factor {factor} is not in 1 to {crop}")
    crop -= crop % factor
    root = root_of(kind, dataroot)
    train: Iterable[Image.Image]
    test: Iterable[Image.Image]
    with ThreadPoolExecutor(max(1, threads)) as pool:
        if root and (found := files_of(root)):
            train, test = (pool.map(lambda path: _centre(_luminance(path), crop), part) for part in found)
            origin = Origin(
                named(f"{found[0][0].parent.relative_to(root)}/*", found[0][0].parent),
                "that of the user's files",
                len(found[0]),
            )
        elif kind != "synthetic" and (carried := photographs.shipped()):
            tiles = [tile for image in pool.map(_luminance, carried[0]) for tile in _tiles(image, crop)]
            train, test = _part(tiles)
            origin = Origin(f"tiles of {carried[1].source}", carried[1].licence, len(train))
        elif kind == "real":
            raise Unavailable(
                "pictures",
                f"{dataroot or 'no dataroot'}, the packages scikit-image and scikit-learn",
                "give a dataroot with BSDS500 or with .jpg and .png files, or pip install scikit-image",
            )
        else:
            train, test = _noise(_SYNTHETIC_TRAIN, crop, seed), _noise(_SYNTHETIC_TEST, crop, seed + 1)
            origin = Origin(f"synthetic: 1/f noise, seed {seed}", "none needed", _SYNTHETIC_TRAIN)
        pairs = _pairs(train, factor)
        digest = hashlib.sha256(pairs.high.tobytes()).hexdigest()
        return pairs, _pairs(test, factor), Origin(origin.source, origin.licence, origin.count, digest)


class Decoding:
    """A data set for a loader: pair i as `(low, high)`, uint8 `[1, H, W]`, decoded from its file each time.

    Args:
        kind, dataroot, factor, crop: see :func:`load`. Pictures are the user's, or those that a package ships.

    Raises as :func:`load` does; Unavailable if there is no file to decode.
    """

    def __init__(
        self, kind: str = "auto", dataroot: str | Path | None = None, factor: int = 2, crop: int = 256
    ) -> None:
        root = root_of(kind, dataroot)
        self._factor, self._crop = factor, crop - crop % factor
        if root and (found := files_of(root)):
            self._paths = found[0]
            self.origin = Origin(
                named(f"{found[0][0].parent.relative_to(root)}/*", found[0][0].parent),
                "that of the user's files",
                len(found[0]),
            )
        elif kind != "synthetic" and (carried := photographs.shipped()):
            self._paths, known = carried
            self.origin = Origin(f"centres of {known.source}", known.licence, known.count)
        else:
            raise Unavailable("files of pictures to decode", str(dataroot or "no dataroot"))

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        picture = _centre(_luminance(self._paths[index]), self._crop)
        pair = _pairs([picture], self._factor)
        return torch.from_numpy(pair.low), torch.from_numpy(pair.high)


def files_of(root: Path) -> tuple[list[Path], list[Path]] | None:
    """Find the files for training and for testing."""
    for name in FOLDERS:
        train, test = (photographs.files(root / name / part) for part in ("train", "test"))
        if train and test:
            return train[:_MOST], test[:_MOST]
    loose = photographs.files(root)[:_MOST]
    return _part(loose) if len(loose) > 1 else None


def _part(items: list) -> tuple[list, list]:
    return [item for i, item in enumerate(items) if i % _EIGHTH], items[::_EIGHTH]


def _luminance(path: Path) -> Image.Image:
    return photographs.decode(path, "YCbCr").getchannel(0)


def _centre(image: Image.Image, crop: int) -> Image.Image:
    """`crop` x `crop` from the middle, with black around a picture that is smaller."""
    left, top = (round((size - crop) / 2) if size >= crop else -((crop - size) // 2) for size in image.size)
    return image.crop((left, top, left + crop, top + crop))


def _tiles(image: Image.Image, crop: int) -> list[Image.Image]:
    width, height = image.size
    return [
        image.crop((left, top, left + crop, top + crop))
        for top in range(0, height - crop + 1, crop)
        for left in range(0, width - crop + 1, crop)
    ]


def _noise(count: int, crop: int, seed: int) -> list[Image.Image]:
    noise = photographs.Noise(seed)
    return [Image.fromarray(noise.picture(crop, crop)).convert("L") for _ in range(count)]


def _pairs(images: Iterable[Image.Image], factor: int) -> Pairs:
    high = list(images)
    low = [image.resize((image.width // factor,) * 2, Image.Resampling.BILINEAR) for image in high]
    return Pairs(*(np.stack([np.asarray(image) for image in part]) for part in (low, high)))
