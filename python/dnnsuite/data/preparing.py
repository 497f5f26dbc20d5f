# SPDX-License-Identifier: MIT
"""Preparation of data sets: unpacked from the user's archives, or written as fakes; whole or absent.

Fakes are noise in the files of the real ones, for tests of readers: nothing can be learned from them.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .._files import TEMPORARY, OutputError, write_text
from .._lazy import Image
from .._lazy import numpy as np
from ..errors import BadData, InvalidArgument, Unavailable, reason
from . import photographs, point_clouds, translation
from ._origin import FAKE_FILE
from .catalogue import Archive, DataSet

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
    (folder / point_clouds.SHAPENET_MARKS[0]).write_text("".join(lines))
    some = max(2, count // 2)
    for mark, part, number in zip(point_clouds.SHAPENET_MARKS[1:], "abc", (count, some, some), strict=True):
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
    (folder / photographs.LSUN_PICTURES).mkdir()
    for i in range(count):
        Image.fromarray(noise.picture(256, 341)).save(folder / photographs.LSUN_PICTURES / f"{i:040x}.webp", quality=75)


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


Tell = Callable[[str], None]


def prepare(
    data: DataSet,
    dataroot: Path,
    source: Path | None = None,
    count: int | None = None,
    unchecked: bool = False,
    tell: Tell = lambda line: None,
) -> Path:
    """Prepare a data set below a dataroot unless it is there already; nothing is ever downloaded.

    Args:
        source: an archive, a folder with archives, or a folder in which the set lies.
        count: number of training samples of a fake to write instead.
        unchecked: take archives whose hash is not the known one.
        tell: called with a line for each step.

    Returns:
        The folder where it was found, or made.

    Raises:
        InvalidArgument: both or neither of `source` and `count` where the set is missing; or `source` is another set.
        BadData: an archive is damaged, or another one.
        Unavailable: the set is missing and nothing was given to make it of; the message says what to fetch.
        OutputError: it cannot be written.
    """
    if source is not None and count is not None:
        raise InvalidArgument("--from and --fake: give one of them")
    if (found := data.find(dataroot) if dataroot.is_dir() else None) is not None:
        if count is not None:
            raise InvalidArgument(f"--fake: {found} has {data.name} already; give another --dataroot")
        tell(f"{data.name} is complete in {found}")
        return found
    if source is None and count is None:
        raise Unavailable(f"{data.title}, was not found", f"{dataroot}/{data.folder}", what_to_fetch(data))
    with _whole(dataroot, data) as folder:
        if count is not None:
            tell(f"writing a fake {data.name} of {count} samples")
            fake(data.name, folder, count)
            made_of = f"{data.title}: noise in its files, made by `dnnsuite data prepare {data.name} --fake {count}`.\n"
            write_text(folder / FAKE_FILE, made_of)
        else:
            assert source is not None
            _from(data, source, folder, unchecked, tell)
        if data.find(folder.parent) is None:
            what = "; ".join(data.layout)
            raise InvalidArgument(f"{source}: no complete {data.title} in it; below {data.folder} there must be {what}")
    made = data.find(dataroot)
    assert made is not None
    tell(f"{data.name} is complete in {made}")
    return made


def what_to_fetch(data: DataSet) -> str:
    """Name the files that a user has to get by hand, and the command that takes them."""
    names = " and ".join(archive.name for archive in data.archives) or "its files"
    command = f"dnnsuite data prepare {data.name} --from FOLDER_WITH_THEM"
    return f"fetch {names} ({data.size}) from {data.page}, then: {command}; or try with --fake 100"


@contextmanager
def _whole(dataroot: Path, data: DataSet) -> Iterator[Path]:
    """A folder to fill. It takes its place below the dataroot when the body ends well, else it is removed."""
    target = dataroot / data.folder
    try:
        dataroot.mkdir(parents=True, exist_ok=True)
        if target.exists():
            raise InvalidArgument(f"{target} exists and is not a complete {data.name}: move or remove it")
        temporary = Path(tempfile.mkdtemp(prefix=f"{TEMPORARY}{data.name}-", dir=dataroot))
    except OSError as error:
        raise OutputError(f"cannot write to {dataroot}: {error.strerror}") from error
    try:
        folder = temporary / data.folder
        folder.mkdir()
        yield folder
        for made in sorted(temporary.iterdir()):  # an archive may bring a folder of its own
            if any(made.iterdir()):
                made.rename(dataroot / made.name)
    except OSError as error:
        raise OutputError(f"cannot write to {dataroot}: {reason(error)}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _from(data: DataSet, source: Path, folder: Path, unchecked: bool, tell: Tell) -> None:
    if source.is_file():
        archives = {source: _known(data, source)}
        missing = [each.name for each in data.archives if each.name != source.name and len(data.archives) > 1]
        if missing and source.name in {each.name for each in data.archives}:
            archives |= {source.parent / name: _known(data, source.parent / name) for name in missing
                         if (source.parent / name).is_file()}  # fmt: skip
    elif source.is_dir():
        there = [source / each.name for each in data.archives if (source / each.name).is_file()]
        archives = {path: _known(data, path) for path in there}
        if not archives:
            _copy(data, source, folder, tell)
            return
    else:
        raise InvalidArgument(f"--from {source}: no such file or folder")
    for path, archive in archives.items():
        _check(path, archive, unchecked, tell)
        tell(f"unpacking {path.name}")
        into = (folder / archive.into).resolve()
        into.mkdir(parents=True, exist_ok=True)
        _unpack(path, into)
        for inner in sorted(into.glob("*.tar")):  # of ImageNet, one for each class
            _unpack(inner, into / inner.stem)
            inner.unlink()


def _known(data: DataSet, path: Path) -> Archive:
    into = data.archives[0].into if data.archives else "."
    return next((each for each in data.archives if each.name == path.name), Archive(path.name, into=into))


def _copy(data: DataSet, source: Path, folder: Path, tell: Tell) -> None:
    """Take over a folder in which the set lies already, wherever in it."""
    found = data.find(source)
    if found is None:
        wanted = ", ".join(archive.name for archive in data.archives) or "its files"
        raise InvalidArgument(f"--from {source}: neither {wanted} nor {'; '.join(data.layout)} in it")
    tell(f"copying {source}")
    inside = source / data.folder
    shutil.copytree(inside if inside.is_dir() else source, folder, dirs_exist_ok=True)


def _check(path: Path, archive: Archive, unchecked: bool, tell: Tell) -> None:
    """Raise BadData for an archive that is not the one that is known by its name."""
    if not archive.md5:
        tell(f"{path.name}: unverified: nobody publishes a hash to check it by")
        return
    tell(f"checking {path.name}")
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != archive.md5:
        known = f"{archive.md5} that {archive.stated_by} states" if archive.stated_by else archive.md5
        said = f"{path}: its MD5 is {digest.hexdigest()}, not {known}: damaged, unfinished, or another file"
        if not unchecked:
            raise BadData(f"{said}; fetch it again, or give --unchecked")
        tell(said)


def _unpack(path: Path, into: Path) -> None:
    """Unpack a tar or zip archive, or take over a single file; nothing is written outside of `into`."""
    into.mkdir(parents=True, exist_ok=True)
    try:
        if path.suffix == ".gz" and not path.name.endswith(".tar.gz"):
            with gzip.open(path) as file:  # to the end: a download that did not end shows here
                while file.read(1 << 20):
                    pass
            shutil.copyfile(path, into / path.name)
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                archive.extractall(into)  # which leaves out absolute names and ..
        elif tarfile.is_tarfile(path):
            with tarfile.open(path) as tar:
                _extract(tar, into, path)
        else:
            shutil.copyfile(path, into / path.name)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, gzip.BadGzipFile) as error:
        raise BadData(f"{path}: cannot be unpacked: {error}") from error


def _extract(tar: tarfile.TarFile, into: Path, path: Path) -> None:
    """The members of a tar archive that are files and folders below `into`."""
    root = into.resolve()
    for member in tar:
        if not (member.isfile() or member.isdir()):
            continue
        if not (root / member.name).resolve().is_relative_to(root):
            raise BadData(f"{path}: {member.name!r} would be written outside of the data set")
        member.mode = 0o755 if member.isdir() else 0o644
        tar.extract(member, root, set_attrs=False)
