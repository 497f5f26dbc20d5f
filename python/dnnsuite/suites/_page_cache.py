# SPDX-License-Identifier: MIT
"""A job's own files in the page cache: whether they are there before it runs, and dropping them. Needs no root."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._files import cache_folder
from ..errors import Error
from .entry import SuiteEntry

if TYPE_CHECKING:
    from ..data.catalogue import DataSet

_SAMPLE = 200  # files of which the residency is looked at


def before_run(entry: SuiteEntry, cold: bool) -> tuple[str, dict[str, Any]]:
    """Return (state for the record, details) of the files that a job reads; drop them from the cache if `cold`.

    The state is `cold` or `as found`. Details: files, bytes, and the share of their pages that the cache held before.
    """
    files = list(files_of(entry))
    details: dict[str, Any] = {"files": len(files), "resident_before": resident_share(files)}
    if not cold:
        return "as found", details
    return "cold", {**details, "bytes": drop(files), "resident_after": resident_share(files)}


def files_of(entry: SuiteEntry) -> Iterator[Path]:
    """Files of the data sets that a job reads below its dataroot, and of what the package keeps in its own cache."""
    for folder in (cache_folder(), *filter(None, _data_sets(entry).values())):
        for directory, _, names in os.walk(folder):
            yield from (Path(directory, name) for name in names)


def _data_sets(entry: SuiteEntry) -> dict[str, Path | None]:
    """Folders of the data sets that a job reads, by name, below its dataroot; empty if it reads none there."""
    from ..data.catalogue import DATA_SETS

    if entry.dataroot is None or entry.data == "synthetic":
        return {}
    root = Path(entry.dataroot)
    return {name: _found(data, root) for name, data in DATA_SETS.items() if entry.job in data.jobs}


def _found(data: DataSet, root: Path) -> Path | None:
    try:
        return data.find(root)
    except (Error, OSError):  # the job will say what is wrong with it
        return None


def unused_dataroot(entry: SuiteEntry) -> str:
    """Return a flag for a job that finds nothing in the dataroot it was given; empty where it does."""
    sets = _data_sets(entry)
    return f"no {' or '.join(sets)} in the dataroot: other data" if sets and not any(sets.values()) else ""


def drop(files: list[Path]) -> int:
    """Drop files from the page cache; returns their bytes. What cannot be opened stays."""
    total = 0
    for path in files:
        try:
            with open(path, "rb") as file:
                os.fdatasync(file.fileno())  # pages that were not written yet cannot be dropped
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                total += os.fstat(file.fileno()).st_size
        except OSError:
            continue
    return total


def resident_share(files: list[Path]) -> float | None:
    """Share of the files' pages that the page cache holds, measured on evenly chosen ones; None if unknown."""
    chosen = files[:: max(1, len(files) // _SAMPLE)]
    counts = [found for path in chosen if (found := _resident(path)) is not None]
    pages = sum(of for _, of in counts)
    return sum(held for held, _ in counts) / pages if pages else None


def _resident(path: Path) -> tuple[int, int] | None:
    """Return (pages of a file in the page cache, pages that it has)."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if not size:
                return None
            # A private map may be written to, which ctypes wants of memory whose address it tells.
            with mmap.mmap(file.fileno(), size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as mapped:
                pages = -(-size // mmap.PAGESIZE)
                held = (ctypes.c_ubyte * pages)()
                byte = ctypes.c_char.from_buffer(mapped)
                failed = _mincore()(ctypes.addressof(byte), size, held)
                del byte  # the map cannot be closed while it is pointed to
                return None if failed else (sum(value & 1 for value in held), pages)
    except (OSError, ValueError):
        return None


@cache
def _mincore() -> Any:
    function = ctypes.CDLL(None, use_errno=True).mincore
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    return function
