# SPDX-License-Identifier: MIT
"""Pictures of 28 x 28 grey pixels, in the files of MNIST (LeCun et al. 1998) and of its successors."""

from __future__ import annotations

import gzip
import importlib.util
import math
import zlib
from pathlib import Path
from typing import NamedTuple

from .._lazy import Image, npt, torch
from .._lazy import numpy as np
from ..errors import InvalidArgument, Unavailable
from ._origin import Origin, named, root_of

# The files themselves, as torchvision lays them out, and as mila-iqia/training did.
FOLDERS = (".", "raw", "MNIST/raw", "FashionMNIST/raw", "mnist", "mnist/MNIST/raw")
DEBIAN = Path("/usr/share/datasets/fashion-mnist")  # the package dataset-fashion-mnist

_SIDE, _CLASSES = 28, 10
_UNSIGNED_BYTE = 8
_SYNTHETIC = {"train": 4096, "t10k": 512}


class Pictures(NamedTuple):
    """Attributes: images: uint8 `[N, 28, 28]`; labels: uint8 `[N]`; origin: where they came from."""

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.uint8]
    origin: Origin


class OneByOne:
    """A data set for a loader: picture i as a tensor `[784]` in [0, 1], made of a PIL image as torchvision does."""

    def __init__(self, pictures: Pictures) -> None:
        self._images = pictures.images

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> torch.Tensor:
        pixels = np.asarray(Image.fromarray(self._images[index]), np.float32)
        return torch.from_numpy(pixels / 255).flatten()


def load(kind: str = "auto", dataroot: str | Path | None = None, seed: int = 0, train: bool = True) -> Pictures:
    """Load the user's own files under `dataroot` (in one of `FOLDERS`), else real ones that a package ships
    (Debian's Fashion-MNIST, scikit-learn's digits), else drawn from `seed`.

    Args:
        kind: `auto` takes the first that there is; `real` refuses to draw any; `synthetic` draws them.
        train: the training part, or (False) the test part.

    Raises:
        InvalidArgument: an unknown kind, a dataroot that is not a folder, a damaged file.
        Unavailable: `real` was asked for and there is none.
    """
    part = "train" if train else "t10k"
    root = root_of(kind, dataroot)
    if kind == "synthetic":
        return _synthetic(seed, part)
    for folder in [root / name for name in FOLDERS] if root else []:
        if pair := files_of(folder, part):
            source = named(f"{pair[0].relative_to(root or folder)}", folder)
            return _read_pair(pair, source, "that of the user's files")
    if pair := files_of(DEBIAN, part):
        return _read_pair(pair, "Fashion-MNIST, Debian's package dataset-fashion-mnist", "MIT")
    if table := digits_file():
        return digits(table, train)
    if kind == "real":
        raise Unavailable(
            f"a file {part}-images-idx3-ubyte",
            f"{dataroot or 'no dataroot'}, {DEBIAN}, the package scikit-learn",
            "apt-get install dataset-fashion-mnist",
        )
    return _synthetic(seed, part)


def read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """Read the array of bytes in an IDX file, which may be gzipped.

    Raises InvalidArgument naming the file if it is not one, is cut off, or continues after its end.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidArgument(f"{path} cannot be read: {error}") from error
    if len(content) < 4 or content[:3] != bytes([0, 0, _UNSIGNED_BYTE]):
        raise InvalidArgument(f"{path} is not an IDX file of bytes: it begins with {content[:4].hex(' ')!r}")
    begin = 4 + 4 * content[3]
    shape = tuple(int.from_bytes(content[i : i + 4], "big") for i in range(4, begin, 4))
    if len(content) != begin + math.prod(shape):
        raise InvalidArgument(
            f"{path} should hold {list(shape)} bytes after its header of {begin}, but has "
            f"{len(content) - begin}: it is damaged, or a download that did not end"
        )
    return np.frombuffer(content, np.uint8, offset=begin).reshape(shape)


def files_of(folder: Path, part: str) -> tuple[Path, Path] | None:
    """Find the files of images and labels; both or none."""
    pair = []
    for what in ("images{}idx3-ubyte", "labels{}idx1-ubyte"):
        names = [f"{part}-{what.format(sign)}{end}" for sign in "-." for end in ("", ".gz")]
        pair += [folder / name for name in names if (folder / name).is_file()][:1]
    return (pair[0], pair[1]) if len(pair) == 2 else None


def _read_pair(pair: tuple[Path, Path], source: str, licence: str) -> Pictures:
    images_path, labels_path = pair
    images, labels = map(read_idx, pair)
    if images.ndim != 3 or images.shape[1:] != (_SIDE, _SIDE) or not len(images):
        raise InvalidArgument(f"{images_path} has images {list(images.shape)}, not [N, {_SIDE}, {_SIDE}]")
    if labels.shape != images.shape[:1]:
        raise InvalidArgument(
            f"{labels_path} has labels {list(labels.shape)} for {len(images)} images of {images_path}"
        )
    return Pictures(images, labels, Origin.of(source, licence, images))


def digits_file() -> Path | None:
    spec = importlib.util.find_spec("sklearn")  # not imported, which takes longer than reading the file
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "datasets/data/digits.csv.gz"
    return path if path.is_file() else None


def digits(path: Path, train: bool) -> Pictures:
    """Scale the digits to 3 x 3 pixels for each of theirs, in a margin of 2."""
    small, labels = small_digits(path, train)
    images = np.pad(small.repeat(3, axis=1).repeat(3, axis=2), ((0, 0), (2, 2), (2, 2)))
    origin = Origin.of("digits of scikit-learn, enlarged", "CC BY 4.0", images)
    return Pictures(images, labels.astype(np.uint8), origin)


def small_digits(path: Path, train: bool) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float64]]:
    """Read scikit-learn's digits, of 8 x 8 pixels of 0 to 16, and their labels. Every eighth one is for testing."""
    table = np.loadtxt(path, delimiter=",")
    table = table[(np.arange(len(table)) % 8 != 0) == train]
    return np.minimum(table[:, :-1] * 16, 255).astype(np.uint8).reshape(-1, 8, 8), table[:, -1]


def _synthetic(seed: int, part: str) -> Pictures:
    """Ten classes: in each, a pixel is white with its own probability, alike for its neighbours."""
    classes = np.random.Generator(np.random.Philox(key=seed & (2**64 - 1)))
    log_odds = classes.normal(scale=4.0, size=(_CLASSES, 7, 7)).repeat(4, axis=1).repeat(4, axis=2)
    draws = np.random.Generator(np.random.Philox(key=[seed & (2**64 - 1), 1 + (part == "t10k")]))
    labels = draws.integers(_CLASSES, size=_SYNTHETIC[part], dtype=np.uint8)
    probability = 1 / (1 + np.exp(-log_odds[labels]))
    images = (draws.random(probability.shape) < probability) * np.uint8(255)
    source = f"synthetic: {_CLASSES} classes of pixels, seed {seed}"
    return Pictures(images, labels, Origin.of(source, "none needed", images))
