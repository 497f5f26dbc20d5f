# SPDX-License-Identifier: MIT
"""CPUs that runs on this machine hold, of all users: a small file for each, so that two runs on the same ones say so.

A file bears the name of its run, which tells whether its owner lives; one of a dead owner counts for nothing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from .._C import format_cpu_list, parse_cpu_list
from ._groups import owner_state
from ._processes import RUN_VARIABLE

_FOLDER = "dnnsuite-pins"
_LONGEST = 1 << 16  # bytes of a file


class Holder(NamedTuple):
    """A run that holds CPUs which another one wants, too."""

    name: str
    process: int
    cpus: str  # those that both have

    def __str__(self) -> str:
        return f"CPUs {self.cpus} are held by another run, too ({self.name}, process {self.process})"


def _folder() -> Path:
    """Return the folder of all users, in memory where the machine has such a place; `$DNNSUITE_PINS` is another."""
    if named := os.environ.get("DNNSUITE_PINS"):
        return Path(named)
    shared = Path("/dev/shm")
    return (shared if shared.is_dir() and os.access(shared, os.W_OK) else Path("/tmp")) / _FOLDER


def hold(name: str, cpus: str) -> None:
    """Say that run `name` holds `cpus`. Does nothing where that cannot be written: it is a courtesy."""
    folder = _folder()
    with suppress(OSError):
        with suppress(FileExistsError):
            folder.mkdir()
            folder.chmod(0o1777)
        if not stat.S_ISDIR(folder.lstat().st_mode):
            return
        temporary = folder / f".{name}"
        file = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o644)
        with os.fdopen(file, "w") as opened:
            opened.write(cpus)
        os.replace(temporary, folder / name)


def release(name: str) -> None:
    """Say that the run is over. Idempotent."""
    with suppress(OSError):
        (_folder() / name).unlink()


def overlapping(name: str, cpus: str) -> list[Holder]:
    """List the live runs that hold some of `cpus`, but this one and that inside of which it runs."""
    mine = set(parse_cpu_list(cpus))
    around = os.environ.get(RUN_VARIABLE, "").partition("/")[0]
    found = []
    for path in _files():
        if path.name in (name, around) or owner_state(path.name) != "live":
            continue
        with suppress(OSError, ValueError, IndexError):
            text = path.read_text() if path.stat().st_size < _LONGEST else ""
            if both := mine & set(parse_cpu_list(text)):
                found.append(Holder(path.name, int(path.name.split("-")[1]), format_cpu_list(sorted(both))))
    return found


def _files() -> Iterator[Path]:
    with suppress(OSError):
        for path in sorted(_folder().iterdir()):
            if owner_state(path.name) == "stale":
                with suppress(OSError):
                    path.unlink()
            elif stat.S_ISREG(path.lstat().st_mode):
                yield path
