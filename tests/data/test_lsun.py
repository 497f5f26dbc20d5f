# SPDX-License-Identifier: MIT
import io
import sys
from pathlib import Path

import lmdb
import numpy as np
import pytest
from PIL import Image

from dnnsuite.data import photographs
from dnnsuite.errors import BadData, Unavailable


def database(root: Path, *values: bytes) -> Path:
    """LSUN as its archive unpacks: a database of WebP pictures by their hash."""
    place = root / "lsun" / photographs.LSUN_DATABASE
    place.mkdir(parents=True)
    with lmdb.open(str(place)) as made, made.begin(write=True) as writing:
        for i, value in enumerate(values):
            writing.put(f"{i:040x}".encode(), value)
    return place


def picture(grey: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((32, 48, 3), grey, np.uint8)).save(file, format="WEBP", lossless=True)
    return file.getvalue()


def test_pictures_of_the_published_database(tmp_path: Path) -> None:
    place = database(tmp_path, picture(10), picture(200))
    assert photographs.find_lsun(tmp_path) == place
    found = photographs.load_crops("real", tmp_path, size=8)
    assert found.images[:, 0, 0, 0].tolist() == [10, 200]
    assert found.origin.source == f"LSUN bedroom, {place}"
    assert len(list(photographs.lsun_pictures(place, 1))) == 1


def test_what_is_damaged_is_named(tmp_path: Path) -> None:
    database(tmp_path / "a", b"no picture")
    with pytest.raises(BadData, match=r"bedroom_train_lmdb, picture 0000.* cannot be decoded"):
        photographs.load_crops("real", tmp_path / "a")
    broken = tmp_path / "lsun" / photographs.LSUN_DATABASE
    broken.mkdir(parents=True)
    (broken / "data.mdb").write_bytes(b"no database" * 1000)
    with pytest.raises(BadData, match="bedroom_train_lmdb: no database of pictures"):
        photographs.load_crops("real", tmp_path)


def test_without_the_package_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database(tmp_path, picture(1))
    monkeypatch.setitem(sys.modules, "lmdb", None)
    with pytest.raises(Unavailable, match="pip install lmdb, or export the pictures"):
        photographs.load_crops("auto", tmp_path)
