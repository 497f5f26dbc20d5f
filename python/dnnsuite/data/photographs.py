# SPDX-License-Identifier: MIT
"""Photographs: files of any size, those that installed packages carry, noise that has their statistics, bedrooms of
LSUN (Yu et al., 2015), the LMDB database that its authors publish or a folder of its pictures, and square parts of
them, to train a generator of images on.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import io
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from .._files import cache_folder
from .._lazy import Image, npt
from .._lazy import numpy as np
from ..errors import BadData, InvalidArgument, Unavailable
from ._origin import Origin, cached, named, root_of

EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp")

_GENERATED_SIZE = (500, 375)  # width and height of many of ImageNet's; with this quality, also their 110 kB
_QUALITY = 90
_CLASSES = 8
_FORMAT = 1  # of the generated files: raise it when they change
# In packages, what is a photograph and large enough: package → folder, names, licence.
_SHIPPED = {
    "skimage": (
        "data",
        "astronaut.png brick.png camera.png chelsea.png coffee.png grass.png gravel.png hubble_deep_field.jpg "
        "ihc.png moon.png retina.jpg rocket.jpg",
        "CC0 or public domain, per file in the README of its data",
    ),
    "sklearn": ("datasets/images", "china.jpg flower.jpg", "CC BY"),
}


def files(folder: Path) -> list[Path]:
    """List the image files directly in `folder`, by name."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in EXTENSIONS)


def decode(path: str | Path | BinaryIO, mode: str = "RGB", name: str = "") -> Image.Image:
    """Return the picture in a file, or in an open one called `name`. Raises BadData if it is damaged or no picture."""
    try:
        with Image.open(path) as image:
            return image.convert(mode)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise BadData(f"{name or path} cannot be decoded: {error}") from error


def shipped() -> tuple[list[Path], Origin] | None:
    """Photographs of the package scikit-image, else of scikit-learn; neither is imported."""
    for package, (folder, names, licence) in _SHIPPED.items():
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            continue
        paths = [Path(spec.origin).parent / folder / name for name in names.split()]
        if found := [path for path in paths if path.is_file()]:
            return found, Origin(f"photographs of the package {package}", licence, len(found))
    return None


class Noise:
    """Pictures whose amplitude falls as 1/f, as that of natural scenes does (Field, JOSA A 4(12), 1987).

    They compress and look to a convolution like photographs. The same seed gives the same row of pictures.
    """

    _SIDE = 512

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.Generator(np.random.Philox(key=seed & (2**64 - 1)))
        frequency = np.hypot(np.fft.fftfreq(self._SIDE)[:, None], np.fft.rfftfreq(self._SIDE))
        frequency[0, 0] = np.inf
        white = np.fft.rfft2(self._rng.normal(size=(4, self._SIDE, self._SIDE)))
        fields = np.fft.irfft2(white / frequency).astype(np.float32)  # they go on periodically
        self._fields = fields / fields.std(axis=(1, 2), keepdims=True)

    def picture(self, height: int, width: int) -> npt.NDArray[np.uint8]:
        """Draw a picture `[height, width, 3]`: one random field is its light, others add a little colour."""
        window = np.empty((4, height, width), np.float32)
        for field, place in zip(self._fields, window, strict=True):
            top, left = self._rng.integers(self._SIDE, size=2)
            rows, columns = (top + np.arange(height)) % self._SIDE, (left + np.arange(width)) % self._SIDE
            place[:] = field[rows[:, None], columns]
        light = window[:1] + 0.25 * window[1:]
        return np.clip(128 + 55 * light, 0, 255).astype(np.uint8).transpose(1, 2, 0)


def jpeg_folder(count: int, seed: int = 0) -> tuple[Path, Origin]:
    """Return a folder `class-*/*.jpg` of `count` files like ImageNet's, made once and shared by all processes.

    Raises InvalidArgument below one file per class, Unavailable where the cache cannot be written.
    """
    import PIL

    if count < _CLASSES:
        raise InvalidArgument(f"{count} images are not enough for {_CLASSES} classes")
    recipe = json.dumps([_FORMAT, count, seed, _GENERATED_SIZE, _QUALITY, PIL.__version__])
    name = f"jpeg-{hashlib.sha256(recipe.encode()).hexdigest()[:24]}"
    cached(name, lambda: True, lambda _, place: _write(place, count, seed), lambda place: _check(place, count))
    folder = cache_folder() / name
    if not folder.is_dir():
        raise Unavailable(
            f"room for {count} generated JPEG files",
            str(folder.parent),
            "make DNNSUITE_CACHE a folder that can be written, or give a dataroot with images",
        )
    width, height = _GENERATED_SIZE
    source = f"synthetic: JPEG files {width} x {height}, quality {_QUALITY}, of 1/f noise, seed {seed}"
    return folder, Origin(source, "none needed", count)


def _write(place: Path, count: int, seed: int) -> None:
    noise, (width, height) = Noise(seed), _GENERATED_SIZE
    for i in range(count):
        path = place / f"class-{i % _CLASSES}" / f"{i:06d}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(noise.picture(height, width)).save(path, quality=_QUALITY)


def _check(place: Path, count: int) -> bool:
    found = sum(path.stat().st_size > 0 for path in place.glob("class-*/*.jpg"))
    if found != count:
        raise ValueError(f"{found} files, not {count}")
    return True


LSUN_FOLDER = "lsun"
LSUN_DATABASE = "bedroom_train_lmdb"  # as its archive unpacks
LSUN_PICTURES = "bedroom"  # as its own tool, and DCGAN's scripts, export them


def find_lsun(root: Path) -> Path | None:
    """Return the database, or the folder of pictures, in a dataroot or in `lsun` below it; None where there is
    neither."""
    for folder in (root / LSUN_FOLDER, root):
        if (folder / LSUN_DATABASE / "data.mdb").is_file():
            return folder / LSUN_DATABASE
        if files(folder / LSUN_PICTURES):
            return folder / LSUN_PICTURES
    return None


def lsun_pictures(found: Path, most: int) -> Iterator[Image.Image]:
    """Yield the first `most` pictures of what :func:`find` found.

    Raises:
        BadData: the database or a picture is damaged; the message names it.
        Unavailable: a database, and the package lmdb is not installed.
    """
    if found.name != LSUN_DATABASE:
        yield from (decode(path) for path in files(found)[:most])
        return
    try:
        lmdb: Any = importlib.import_module("lmdb")
    except ImportError as error:
        remedy = f"pip install lmdb, or export the pictures into {found.parent / LSUN_PICTURES}"
        raise Unavailable("the package lmdb, which reads LSUN's database", str(found), remedy) from error
    try:
        with lmdb.open(str(found), readonly=True, lock=False, create=False) as database, database.begin() as reading:
            for key, value in itertools.islice(reading.cursor(), most):
                name = f"{found}, picture {key.decode('ascii', 'replace')}"
                yield decode(io.BytesIO(value), name=name)
    except lmdb.Error as error:
        raise BadData(f"{found}: no database of pictures: {error}") from error


_AT_MOST = 20_000  # pictures of a user's folder: 240 MB of 64 x 64


class Crops(NamedTuple):
    """Attributes: images: uint8 `[N, 3, S, S]`; origin: where they came from."""

    images: npt.NDArray[np.uint8]
    origin: Origin


def load_crops(
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
    if root and (bedrooms := find_lsun(root)):
        images = [_middle(picture, size) for picture in lsun_pictures(bedrooms, _AT_MOST)]
        return _crops(images, named(f"LSUN bedroom, {bedrooms}", bedrooms), "for research, as its authors say")
    folders = [root, *sorted(path for path in root.iterdir() if path.is_dir())] if root else []
    own = [path for folder in folders for path in files(folder)][:_AT_MOST]
    if own:
        images = [_middle(decode(path), size) for path in own]
        return _crops(images, f"pictures of {root}", "that of the user's files")
    if kind != "synthetic" and (carried := shipped()):
        pictures = [decode(path) for path in carried[0]]
        images = [_part(pictures[i % len(pictures)], size, rng) for i in range(count)]
        return _crops(images, f"parts of {carried[1].source}", carried[1].licence)
    if kind == "real":
        raise Unavailable(
            "photographs",
            f"{dataroot or 'no dataroot'}, the packages scikit-image and scikit-learn",
            "give a dataroot with .jpg or .png files",
        )
    noise = Noise(seed)
    return _crops(
        [noise.picture(size, size) for _ in range(count)], f"synthetic: 1/f noise, seed {seed}", "none needed"
    )


def _crops(images: list[npt.NDArray[np.uint8]], source: str, licence: str) -> Crops:
    stacked = np.ascontiguousarray(np.stack(images).transpose(0, 3, 1, 2))
    return Crops(stacked, Origin.of(source, licence, stacked))


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
