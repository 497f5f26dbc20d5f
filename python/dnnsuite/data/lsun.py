# SPDX-License-Identifier: MIT
"""Bedrooms of LSUN (Yu et al., 2015): the LMDB database that its authors publish, or a folder of its pictures."""

from __future__ import annotations

import importlib
import io
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .._lazy import Image
from ..errors import BadData, Unavailable
from . import photographs

FOLDER = "lsun"
DATABASE = "bedroom_train_lmdb"  # as its archive unpacks
PICTURES = "bedroom"  # as its own tool, and DCGAN's scripts, export them


def find(root: Path) -> Path | None:
    """Return the database, or the folder of pictures, in a dataroot or in `lsun` below it; None where there is
    neither."""
    for folder in (root / FOLDER, root):
        if (folder / DATABASE / "data.mdb").is_file():
            return folder / DATABASE
        if photographs.files(folder / PICTURES):
            return folder / PICTURES
    return None


def pictures(found: Path, most: int) -> Iterator[Image.Image]:
    """Yield the first `most` pictures of what :func:`find` found.

    Raises:
        BadData: the database or a picture is damaged; the message names it.
        Unavailable: a database, and the package lmdb is not installed.
    """
    if found.name != DATABASE:
        yield from (photographs.decode(path) for path in photographs.files(found)[:most])
        return
    try:
        lmdb: Any = importlib.import_module("lmdb")
    except ImportError as error:
        remedy = f"pip install lmdb, or export the pictures into {found.parent / PICTURES}"
        raise Unavailable("the package lmdb, which reads LSUN's database", str(found), remedy) from error
    try:
        with lmdb.open(str(found), readonly=True, lock=False, create=False) as database, database.begin() as reading:
            for key, value in itertools.islice(reading.cursor(), most):
                name = f"{found}, picture {key.decode('ascii', 'replace')}"
                yield photographs.decode(io.BytesIO(value), name=name)
    except lmdb.Error as error:
        raise BadData(f"{found}: no database of pictures: {error}") from error
