# SPDX-License-Identifier: MIT
"""Data sets made ready: fakes that every reader takes for real, archives, and what goes wrong."""

import gzip
import hashlib
import io
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from dnnsuite.data import (
    cifar,
    detection,
    imagenet,
    mnist,
    photographs,
    point_clouds,
    ratings,
    super_resolution,
    translation,
    words,
)
from dnnsuite.data.catalogue import DATA_SETS, Archive, data_set
from dnnsuite.data.preparing import FAKES, prepare
from dnnsuite.errors import BadData, InvalidArgument, Unavailable

COUNTS = {"imagenet": 4, "mnist": 12, "cifar10": 10, "cifar100": 10, "bsds500": 2, "wmt16": 8, "coco": 2, "ml-20m": 75,
          "wikitext-2": 30, "shapenet": 4, "lsun": 2}  # fmt: skip
READERS = {
    "imagenet": lambda root: imagenet.pool("real", root, 2, 1, size=32).origin,
    "mnist": lambda root: mnist.load("real", root).origin,
    "cifar10": lambda root: cifar.load_cifar10("real", root).origin,
    "cifar100": lambda root: cifar.load("real", root).origin,
    "bsds500": lambda root: super_resolution.load("real", root)[2],
    "wmt16": lambda root: translation.load("real", root).origin,
    "coco": lambda root: detection.Coco(detection.find("real", root), lambda boxes, labels: (boxes, labels)).origin,
    "ml-20m": lambda root: ratings.load("real", root).origin,
    "wikitext-2": lambda root: words.load("real", root).origin,
    "shapenet": lambda root: point_clouds.load_shapes("real", root).origin,
    "lsun": lambda root: photographs.load_crops("real", root, size=16).origin,
}


@pytest.mark.parametrize("name", DATA_SETS)
def test_readers_take_a_fake_for_real(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DNNSUITE_CACHE", str(tmp_path / "cache"))
    data, root = data_set(name), tmp_path / "data"
    made = prepare(data, root, count=COUNTS[name])
    assert made.is_relative_to(root)
    assert [path.name for path in root.iterdir()] == [data.folder]
    origin = READERS[name](root)
    assert origin.count >= 1
    assert origin.source.startswith("fake: ")  # a record of such data does not name the real ones
    assert "synthetic" not in origin.source
    assert prepare(data, root) == made  # it is there: nothing to do


def test_every_set_has_a_fake() -> None:
    assert FAKES.keys() == DATA_SETS.keys() == COUNTS.keys() == READERS.keys()


def test_without_a_source_it_says_what_to_fetch(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"fetch ml-20m.zip \(190 MB\) from grouplens.org.*--from FOLDER_WITH_THEM"):
        prepare(data_set("ml-20m"), tmp_path / "data")
    assert not (tmp_path / "data").exists()


def zipped(folder: Path, name: str = "ml-20m.zip") -> Path:
    """MovieLens as its authors pack it."""
    prepare(data_set("ml-20m"), folder / "made", count=50)
    with zipfile.ZipFile(folder / name, "w") as archive:
        archive.write(folder / "made/ml-20m/ratings.csv", "ml-20m/ratings.csv")
    return folder / name


def test_an_archive_is_checked_and_unpacked(tmp_path: Path) -> None:
    path, root = zipped(tmp_path), tmp_path / "data"
    with pytest.raises(BadData, match=r"ml-20m.zip: its MD5 is .*, not cd245.*--unchecked"):
        prepare(data_set("ml-20m"), root, path)
    assert list(root.iterdir()) == []
    known = replace(
        data_set("ml-20m"), archives=(Archive("ml-20m.zip", hashlib.md5(path.read_bytes()).hexdigest(), into=".."),)
    )
    assert prepare(known, root, path) == root / "ml-20m"
    assert (root / "ml-20m/ratings.csv").read_bytes() == (tmp_path / "made/ml-20m/ratings.csv").read_bytes()


def test_a_folder_in_which_it_lies_is_copied(tmp_path: Path) -> None:
    prepare(data_set("wikitext-2"), tmp_path / "made", count=20)
    made = prepare(data_set("wikitext-2"), tmp_path / "data", tmp_path / "made")
    assert made == tmp_path / "data/wikitext-2"


def test_a_download_that_did_not_end_is_no_data_set(tmp_path: Path) -> None:
    path = zipped(tmp_path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InvalidArgument, match=r"no complete MovieLens 20M|cannot be unpacked"):
        prepare(data_set("ml-20m"), tmp_path / "data", path, unchecked=True)
    cut = tmp_path / "train-images-idx3-ubyte.gz"
    cut.write_bytes(gzip.compress(bytes(1000))[:20])
    with pytest.raises(BadData, match="cannot be unpacked"):
        prepare(data_set("mnist"), tmp_path / "data", cut, unchecked=True)
    assert list((tmp_path / "data").iterdir()) == []


def test_members_outside_of_the_folder_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "BSR_bsds500.tgz"
    with tarfile.open(path, "w:gz") as archive:
        about = tarfile.TarInfo("../../../evil.jpg")
        about.size = 4
        archive.addfile(about, io.BytesIO(b"evil"))
    with pytest.raises(BadData, match=r"evil.jpg' would be written outside"):
        prepare(data_set("bsds500"), tmp_path / "data/deep", path)
    assert not list(tmp_path.rglob("evil.jpg"))


def test_class_archives_inside_of_imagenets_are_unpacked(tmp_path: Path) -> None:
    prepare(data_set("imagenet"), tmp_path / "made", count=2)
    (picture,) = list((tmp_path / "made/ImageNet/train").rglob("*.JPEG"))[:1]
    inner = tmp_path / "n01440764.tar"
    with tarfile.open(inner, "w") as archive:
        archive.add(picture, "n01440764_1.JPEG")
    with tarfile.open(tmp_path / "train.tar", "w") as archive:
        archive.add(inner, inner.name)
    made = prepare(data_set("imagenet"), tmp_path / "data", tmp_path / "train.tar")
    assert [path.relative_to(made).as_posix() for path in made.rglob("*.JPEG")] == ["n01440764/n01440764_1.JPEG"]


@pytest.mark.parametrize(
    ("more", "words_"),
    [
        ({"count": 3, "source": Path("x")}, "give one of them"),
        ({"count": 1}, "--fake 1: ml-20m takes 25 to 20,000,000"),
        ({"source": Path("absent")}, "--from absent: no such file or folder"),
        ({"source": Path(".")}, "neither ml-20m.zip nor ratings.csv"),
    ],
)
def test_refusals_leave_nothing(more: dict, words_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgument, match=words_):
        prepare(data_set("ml-20m"), tmp_path / "data", **more)
    assert [path for path in tmp_path.rglob("*") if path.name != "data"] == []


def test_what_stands_in_the_way_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "ml-20m").mkdir()
    (tmp_path / "ml-20m/notes.txt").write_text("mine")
    with pytest.raises(InvalidArgument, match="exists and is not a complete ml-20m"):
        prepare(data_set("ml-20m"), tmp_path, count=30)
    assert (tmp_path / "ml-20m/notes.txt").read_text() == "mine"
