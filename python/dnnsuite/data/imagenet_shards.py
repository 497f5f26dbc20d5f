# SPDX-License-Identifier: MIT
"""ImageNet as TFRecord shards: the files of TBD's conversion, made from class folders and read for training."""

from __future__ import annotations

import bisect
import hashlib
import io
import itertools
import json
import random
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._files import read_json, replacing, write_json
from .._lazy import Image
from ..errors import InvalidArgument
from . import photographs, tfrecord
from ._origin import Origin

FOLDER = "TFRecords"
PARTS = ("train", "validation")  # in the names of shards
_FOLDERS = {"train": ("train",), "validation": ("val", "validation", "valid")}
_NAME = re.compile(r"(train|validation)-(\d{5})-of-(\d{5})")
_STATE = "shards.json"  # what the shards were made of, and the classes
_SEED = 12345  # of the order of images, which lie mixed, as the original's do
_CLASSES = 1000


def find(root: str | Path | None, part: str = "train") -> list[Path]:
    """Return the shards of a part in `root` or its folder TFRecords, by name; none where there are none.

    Raises:
        InvalidArgument: some of them are missing; the first is named.
    """
    for folder in [Path(root), Path(root) / FOLDER] if root is not None else []:
        names = sorted(path for path in folder.glob(f"{part}-*-of-*") if _NAME.fullmatch(path.name))
        if not names:
            continue
        counts = {path.name[-5:] for path in names}
        if len(counts) > 1:
            raise InvalidArgument(f"{folder} has shards of two conversions: of {' and of '.join(sorted(counts))}")
        wanted = [folder / f"{part}-{i:05d}-of-{counts.copy().pop()}" for i in range(int(counts.copy().pop()))]
        if missing := [path for path in wanted if path not in set(names)]:
            raise InvalidArgument(f"{missing[0]} is missing, of {len(wanted)} shards {len(missing)} are")
        return wanted
    return []


class ShardedImages:
    """Images of shards, for a DataLoader: `dataset[i]` is (transformed picture, class from 0).

    Args:
        shards: result of :func:`find`.
        transform: transform of an RGB picture.

    Attributes:
        classes: their names; numbers where the conversion left no list of them, as the original's does not.

    Raises:
        InvalidArgument: a shard is damaged; the message names it and the offset. `dataset[i]` raises it too.
    """

    def __init__(self, shards: Sequence[Path], transform: Callable[[Image.Image], Any]) -> None:
        self._shards, self._transform = list(shards), transform
        self._places = [list(tfrecord.places(path)) for path in self._shards]
        self._ends = list(itertools.accumulate(map(len, self._places)))
        state = self._shards[0].parent / _STATE
        self.classes: list[str] = (
            list(read_json(state)["classes"]) if state.is_file() else [str(i) for i in range(_CLASSES)]
        )

    @property
    def files(self) -> list[tuple[str, int]]:
        """Names of the shards, and their sizes in bytes."""
        return [(path.name, path.stat().st_size) for path in self._shards]

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> tuple[Any, int]:
        example, where = self.example(index)
        try:
            (encoded,), (label,) = example["image/encoded"], example["image/class/label"]
        except (KeyError, ValueError):
            raise InvalidArgument(f"{where} has no picture with a class") from None
        if not isinstance(label, int) or not 1 <= label <= len(self.classes):
            raise InvalidArgument(f"{where} has the class {label!r}, of 1 to {len(self.classes)}")
        return self._transform(_picture(encoded, where)), label - 1

    def example(self, index: int) -> tuple[Mapping[str, Sequence[Any]], str]:
        """Return (a record's lists by name, its file and offset). Raises InvalidArgument if it is damaged."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        shard = bisect.bisect_right(self._ends, index)
        path = self._shards[shard]
        place = self._places[shard][index - (self._ends[shard - 1] if shard else 0)]
        where = f"{path}: the record at byte {place.offset}"
        data = tfrecord.read(path, place)
        try:
            return tfrecord.decode_example(data), where
        except (ValueError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"{where} is not a tf.train.Example: {error}") from error


def _picture(encoded: Any, where: str) -> Image.Image:
    try:
        with Image.open(io.BytesIO(encoded)) as image:
            return image.convert("RGB")
    except (OSError, SyntaxError, ValueError, TypeError, Image.DecompressionBombError) as error:
        raise InvalidArgument(f"{where} holds a picture that cannot be decoded: {error}") from error


def origin_of(dataset: ShardedImages, shards: Sequence[Path]) -> Origin:
    """Provenance of a user's shards, for the record."""
    folder = shards[0].parent
    return Origin(f"{folder}: {len(shards)} TFRecord shards", "that of the user's files", len(dataset))


@dataclass(frozen=True)
class Conversion:
    """Plan to write class folders as shards.

    Attributes:
        images: per part, (file, number of its class from 1), in the order in which they are written.
        classes: classes by name; the first has number 1.
        shards: number of shards of each part.
        out: folder to write to.
    """

    images: Mapping[str, Sequence[tuple[Path, int]]]
    classes: Sequence[str]
    shards: Mapping[str, int]
    out: Path
    words: Mapping[str, str]

    @property
    def files(self) -> list[tuple[str, int]]:
        """(part, number) of each shard."""
        return [(part, i) for part in self.images for i in range(self.shards[part])]

    def path(self, part: str, number: int) -> Path:
        """Return a shard's file."""
        return self.out / f"{part}-{number:05d}-of-{self.shards[part]:05d}"

    def part_of(self, part: str, number: int) -> Sequence[tuple[Path, int]]:
        """Return the images of a shard: shards differ by one image at most."""
        images, count = self.images[part], self.shards[part]
        return images[len(images) * number // count : len(images) * (number + 1) // count]

    @property
    def state(self) -> dict[str, Any]:
        """Settings and inputs that decide the contents of the shards."""
        listed = json.dumps([[part, str(path), label] for part in self.images for path, label in self.images[part]])
        return {
            "classes": list(self.classes),
            "shards": dict(self.shards),
            "images": {part: len(images) for part, images in self.images.items()},
            "sha256": hashlib.sha256(listed.encode()).hexdigest(),
        }


def plan(
    root: Path, out: Path | None = None, shards: int = 1024, validation_shards: int = 128, words: Path | None = None
) -> Conversion:
    """Plan the shards of the class folders of `root`, train/ and val/; nothing is written.

    Args:
        out: folder of the shards; `root`/TFRecords by default.
        shards, validation_shards: numbers of files.
        words: file of lines `synset<TAB>words`, for image/class/text.

    Raises:
        InvalidArgument: a part or a class has no images, the parts have other classes, or there are too few images.
    """
    if not root.is_dir():
        raise InvalidArgument(f"{root} is not a folder")
    folders = {part: next((root / name for name in _FOLDERS[part] if (root / name).is_dir()), None) for part in PARTS}
    found: dict[str, list[tuple[Path, int]]] = {}
    classes: list[str] = []
    for part, folder in folders.items():
        if folder is None:
            raise InvalidArgument(f"{root} has no folder {_FOLDERS[part][0]} with a folder per class")
        names = sorted(path.name for path in folder.iterdir() if path.is_dir())
        if classes and names != classes:
            odd = sorted(set(names) ^ set(classes))
            raise InvalidArgument(f"{odd[0]} is a class of one part of {root} only")
        classes = names
        found[part] = _listed(folder, names)
        random.Random(_SEED).shuffle(found[part])
    counts = {"train": shards, "validation": validation_shards}
    for part, count in counts.items():
        if not 1 <= count <= len(found[part]):
            raise InvalidArgument(
                f"{count} shards for {len(found[part])} images of {folders[part]}: take 1 to {len(found[part])}"
            )
    return Conversion(found, classes, counts, out or root / FOLDER, _words(words) if words else {})


def _listed(folder: Path, names: Sequence[str]) -> list[tuple[Path, int]]:
    images = []
    for label, name in enumerate(names, 1):
        files = photographs.files(folder / name)
        if not files:
            raise InvalidArgument(f"{folder / name} has no images, and is a class")
        images += [(path, label) for path in files]
    if not images:
        raise InvalidArgument(f"{folder} has no folder per class")
    return images


def _words(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{path} cannot be read: {error}") from error
    parts = [line.split(maxsplit=1) for line in lines if line.strip()]
    return {words[0]: words[1].strip() if len(words) > 1 else "" for words in parts}


def convert(
    conversion: Conversion, workers: int = 8, tell: Callable[[int, int], None] = lambda done, images: None
) -> int:
    """Write the shards that are not there yet, each whole or not at all; return their number.

    Args:
        workers: threads.
        tell: function that is called with (shards that are done, images in the last one).

    Raises:
        InvalidArgument: an image is damaged, or `out` has shards of other images.
        OutputError: a shard cannot be written.
    """
    conversion.out.mkdir(parents=True, exist_ok=True)
    state = conversion.out / _STATE
    now = conversion.state
    if state.is_file() and read_json(state) != now:
        raise InvalidArgument(
            f"{conversion.out} has shards of other images, or in another number: choose another --out"
        )
    write_json(state, now)
    left = [each for each in conversion.files if not conversion.path(*each).is_file()]
    done = len(conversion.files) - len(left)
    ended = threading.Event()
    pool = ThreadPoolExecutor(workers)
    try:
        for future in as_completed([pool.submit(_write, conversion, *each, ended) for each in left]):
            done += 1
            tell(done, future.result())
    finally:
        ended.set()
        pool.shutdown(cancel_futures=True)
    return len(left)


class _EndedError(Exception):
    """Another shard failed, or the user asked to end."""


def _write(conversion: Conversion, part: str, number: int, ended: threading.Event) -> int:
    images = conversion.part_of(part, number)
    with replacing(conversion.path(part, number)) as temporary, open(temporary, "wb") as file:
        for path, label in images:
            if ended.is_set():
                raise _EndedError
            synset = conversion.classes[label - 1]
            words = conversion.words.get(synset, synset)
            tfrecord.write(file, tfrecord.encode_example(_example(path, label, synset, words)))
    return len(images)


def _example(path: Path, label: int, synset: str, words: str) -> tfrecord.Example:
    """Build an example as build_imagenet_data of TensorFlow's models does; there are no boxes."""
    encoded, height, width = _jpeg(path)
    return {
        "image/height": [height],
        "image/width": [width],
        "image/colorspace": ["RGB"],
        "image/channels": [3],
        "image/class/label": [label],
        "image/class/synset": [synset],
        "image/class/text": [words],
        **{f"image/object/bbox/{name}": [] for name in ("xmin", "xmax", "ymin", "ymax", "label")},
        "image/format": ["JPEG"],
        "image/filename": [path.name],
        "image/encoded": [encoded],
    }


def _jpeg(path: Path) -> tuple[bytes, int, int]:
    """Return (bytes, height, width); images other than JPEGs of grey or RGB, as a few of ImageNet's, are encoded
    again."""
    photographs.decode(path)  # a damaged one is named
    with Image.open(path) as image:
        width, height = image.size
        if image.format == "JPEG" and image.mode in ("L", "RGB"):
            return path.read_bytes(), height, width
        made = io.BytesIO()
        image.convert("RGB").save(made, "JPEG", quality=100)
        return made.getvalue(), height, width
