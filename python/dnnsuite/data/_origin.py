# SPDX-License-Identifier: MIT
"""Provenance of training data for the record, and the choice of a data source."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

from ..errors import InvalidArgument, did_you_mean

KINDS = ("auto", "real", "synthetic")
FAKE_FILE = "FAKE.txt"  # in the folder of a set that `dnnsuite data prepare --fake` made
_LEVELS = 7  # of folders: in which a set's files lie, and those above


@dataclasses.dataclass(frozen=True)
class Origin:
    """Provenance of data.

    Attributes:
        source: name of the data.
        licence: licence under which they may be used.
        count: number of images, files, ...
        sha256: hash of the decoded bytes; None where reading all of them would take long.
    """

    source: str
    licence: str
    count: int
    sha256: str | None = None

    def record(self) -> dict[str, Any]:
        """Return a dict of the known values."""
        return {name: value for name, value in vars(self).items() if value is not None}


def named(source: str, place: Path) -> str:
    """Name the source of data that lie in `place`: as `fake: ...` where they were made to try a reader."""
    folders = [place, *place.parents][:_LEVELS]
    return f"fake: {source}" if any((folder / FAKE_FILE).is_file() for folder in folders) else source


def sha256_of(*paths: Path) -> str:
    """Return the hash of the bytes of some files, one after the other."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def root_of(kind: str, dataroot: str | Path | None) -> Path | None:
    """Return the folder in which to look for the user's own files; None without one, or if they are not wanted.

    Raises InvalidArgument for an unknown kind, or a dataroot that is not a folder.
    """
    if kind not in KINDS:
        raise InvalidArgument(f"data {kind!r} is not one of {', '.join(KINDS)}{did_you_mean(kind, KINDS)}")
    if dataroot is None or kind == "synthetic":
        return None
    if not Path(dataroot).is_dir():
        raise InvalidArgument(f"dataroot {str(dataroot)!r} is not a folder")
    return Path(dataroot)
