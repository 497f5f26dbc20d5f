# SPDX-License-Identifier: MIT
"""Data sets of noise in the files of the real ones, for tests of readers: nothing can be learned from them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .._lazy import Image
from .._lazy import numpy as np
from ..errors import InvalidArgument
from . import lsun, photographs, shapenet, translation

_WORDS = (
    "the", "of", "and", "in", "to", "a", "was", "is", "for", "as", "on", "with", "by", "he", "that", "it",
)  # fmt: skip

_MOST = 20_000_000  # samples; MovieLens has as many ratings


def fake(name: str, folder: Path, count: int, seed: int = 0) -> None:
    """Write a data set's files into an existing folder.

    Args:
        name: name of a data set.
        count: number of its training samples: images, sentences, ratings, lines.

    Raises:
        InvalidArgument: there are too few.
    """
    least, write = FAKES[name]
    if not least <= count <= _MOST:
        raise InvalidArgument(f"--fake {count}: {name} takes {least} to {_MOST:,}")
    try:
        write(folder, count, np.random.default_rng(seed))
    except MemoryError as error:
        raise InvalidArgument(f"--fake {count}: more than the memory of this machine holds") from error


def _imagenet(folder: Path, count: int, rng: np.random.Generator) -> None:
    """JPEG files of 512 x 512, as mila-iqia/training's fake_imagenet.py makes them, of noise that compresses as
    photographs do; a tenth as many to validate with."""
    classes = min(1000, max(1, count // 2))
    for part, number in (("train", count), ("val", max(classes, count // 10))):
        _pictures([folder / part / f"n{i % classes:08d}" / f"{part}_{i:08d}.JPEG" for i in range(number)], (512, 512))


def _pictures(paths: list[Path], size: tuple[int, int]) -> None:
    noise, (width, height) = photographs.Noise(len(paths)), size
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise.picture(height, width)).save(path, format="JPEG", quality=90)


def _mnist(folder: Path, count: int, rng: np.random.Generator) -> None:
    for part, number in (("train", count), ("t10k", max(1, count // 6))):
        for kind, shape, most in (("images-idx3", (number, 28, 28), 256), ("labels-idx1", (number,), 10)):
            values = rng.integers(most, size=shape, dtype="uint8")
            head = bytes([0, 0, 8, len(shape)]) + b"".join(n.to_bytes(4, "big") for n in shape)
            (folder / f"{part}-{kind}-ubyte").write_bytes(head + values.tobytes())


def _cifar10(folder: Path, count: int, rng: np.random.Generator) -> None:
    names = [f"data_batch_{i}.bin" for i in range(1, 6)]
    for name, number in [*((name, max(1, count // 5)) for name in names), ("test_batch.bin", max(1, count // 5))]:
        (folder / name).write_bytes(_rows(rng, number, (10,)))


def _cifar100(folder: Path, count: int, rng: np.random.Generator) -> None:
    for name, number in (("train.bin", count), ("test.bin", max(1, count // 5))):
        (folder / name).write_bytes(_rows(rng, number, (20, 100)))


def _rows(rng: np.random.Generator, count: int, labels: tuple[int, ...]) -> bytes:
    """Rows of labels and 3072 pixels."""
    return b"".join(
        bytes(int(rng.integers(most)) for most in labels) + rng.integers(256, size=3072, dtype="uint8").tobytes()
        for _ in range(count)
    )


def _bsds(folder: Path, count: int, rng: np.random.Generator) -> None:
    images = folder / "BSR/BSDS500/data/images"
    for part in ("train", "test"):
        _pictures([images / part / f"{i:06d}.jpg" for i in range(count)], (481, 321))


def _wmt16(folder: Path, count: int, rng: np.random.Generator) -> None:
    pieces = [f"piece{i}" for i in range(1000)]
    (folder / translation.VOCABULARY).write_text("".join(f"{piece}\n" for piece in pieces))
    for name in (translation.SOURCE, translation.TARGET):
        lines = (" ".join(pieces[int(i)] for i in rng.integers(1000, size=rng.integers(4, 40))) for _ in range(count))
        (folder / name).write_text("".join(f"{line}\n" for line in lines))


def _coco(folder: Path, count: int, rng: np.random.Generator) -> None:
    width, height = 640, 480
    names = [f"{i:012d}.jpg" for i in range(1, count + 1)]
    _pictures([folder / "train2017" / name for name in names], (width, height))
    images = [{"id": i, "file_name": name, "width": width, "height": height} for i, name in enumerate(names, 1)]
    boxes: list[dict[str, Any]] = []
    for image in images:
        for _ in range(int(rng.integers(1, 8))):
            w, h = int(rng.integers(40, 300)), int(rng.integers(40, 220))
            box = [int(rng.integers(width - w)), int(rng.integers(height - h)), w, h]
            about = {"id": len(boxes) + 1, "image_id": image["id"], "category_id": int(rng.integers(1, 81))}
            boxes.append({**about, "bbox": box, "area": w * h, "iscrowd": 0, "segmentation": []})
    categories = [{"id": i, "name": f"thing {i}", "supercategory": "thing"} for i in range(1, 81)]
    found = {"info": {}, "licenses": [], "images": images, "annotations": boxes, "categories": categories}
    (folder / "annotations").mkdir()
    (folder / "annotations/instances_train2017.json").write_text(json.dumps(found))


def _movielens(folder: Path, count: int, rng: np.random.Generator) -> None:
    """Users of 25 ratings each, of a tenth as many films as there are ratings."""
    films = max(50, count // 10)
    lines = ["userId,movieId,rating,timestamp\n"]
    for i in range(count):
        user, film = 1 + i // 25, 1 + int(films * rng.random() ** 2)
        lines.append(f"{user},{film},{rng.integers(1, 11) / 2},{1_000_000_000 + i}\n")
    (folder / "ratings.csv").write_text("".join(lines))


def _wikitext(folder: Path, count: int, rng: np.random.Generator) -> None:
    vocabulary = [*_WORDS, *(f"word{i}" for i in range(980))]
    for part, number in (("train", count), ("valid", max(20, count // 10)), ("test", max(20, count // 10))):
        ranks = (len(vocabulary) ** rng.random((number, 20))).astype(int) - 1
        lines = (" " + " ".join(vocabulary[i] for i in row) + " \n" for row in ranks.tolist())
        (folder / f"wiki.{part}.tokens").write_text("".join(lines))


def _shapenet(folder: Path, count: int, rng: np.random.Generator) -> None:
    """Boxes of two halves, which are their parts, of two categories; half as many to validate and to test with."""
    categories = {"Chair": "03001627", "Table": "04379243"}
    lines = [f"{name}\t{place}\n" for name, place in categories.items()]
    (folder / shapenet.MARKS[0]).write_text("".join(lines))
    some = max(2, count // 2)
    for mark, part, number in zip(shapenet.MARKS[1:], "abc", (count, some, some), strict=True):
        listed = [(list(categories.values())[i % 2], f"{part}{i:08d}") for i in range(number)]
        (folder / mark).parent.mkdir(exist_ok=True)
        (folder / mark).write_text(json.dumps([f"shape_data/{place}/{name}" for place, name in listed]))
        for place, name in listed:
            points = (rng.random((400, 3)) - 0.5) * rng.uniform(0.2, 1, 3)
            for room, end, values, form in (
                ("points", ".pts", points, "%.5f"),
                ("points_label", ".seg", 1 + (points[:, :1] > 0), "%d"),
            ):
                (folder / place / room).mkdir(parents=True, exist_ok=True)
                np.savetxt(folder / place / room / f"{name}{end}", values, fmt=form)


def _lsun(folder: Path, count: int, rng: np.random.Generator) -> None:
    """Pictures whose shorter side is 256, exported from the database, for which a package would be needed."""
    noise = photographs.Noise(count)
    (folder / lsun.PICTURES).mkdir()
    for i in range(count):
        Image.fromarray(noise.picture(256, 341)).save(folder / lsun.PICTURES / f"{i:040x}.webp", quality=75)


# Of each data set the fewest samples that its readers can do with, and what writes it.
FAKES: Mapping[str, tuple[int, Callable[[Path, int, np.random.Generator], None]]] = {
    "imagenet": (2, _imagenet),
    "mnist": (1, _mnist),
    "cifar10": (5, _cifar10),
    "cifar100": (1, _cifar100),
    "bsds500": (1, _bsds),
    "wmt16": (1, _wmt16),
    "coco": (1, _coco),
    "ml-20m": (25, _movielens),
    "wikitext-2": (20, _wikitext),
    "shapenet": (2, _shapenet),
    "lsun": (1, _lsun),
}
