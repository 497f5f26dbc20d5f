# SPDX-License-Identifier: MIT
"""Cache folder of prepared data, shared between processes and safe if one of them dies in the middle.

An entry is a folder named by a hash of everything that went into it, so it never goes stale. It is written
under a temporary name and renamed, so it is whole or absent. Without write access the data are built each time.
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from .._files import cache_folder
from .._lazy import npt
from .._lazy import numpy as np

Arrays = tuple[dict[str, "npt.NDArray[Any]"], dict[str, Any]]  # arrays by name, and plain values
_T = TypeVar("_T")
_LOG = logging.getLogger(__name__)
# Longer than it takes to prepare WikiText-103; after that each process prepares its own.
_LOCK_TIMEOUT_S = 600.0


def cached(name: str, build: Callable[[], _T], write: Callable[[_T, Path], None], read: Callable[[Path], _T]) -> _T:
    """Read the entry `name` if it is there and whole; else build it, and keep it where possible.

    Args:
        name: a file name that contains a hash of everything that the entry depends on.
        build: function that makes the value.
        write: function that stores the value in an existing empty folder.
        read: inverse of `write`; raises OSError, ValueError or KeyError for damaged contents.
    """
    place = cache_folder() / name
    value = _read_or_none(place, read)
    if value is not None:
        return value
    import filelock

    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(f"{place}.lock", timeout=_LOCK_TIMEOUT_S):
            value = _read_or_none(place, read)  # another process may have made it while this one waited
            if value is None:
                value = build()
                _publish(value, write, place)
            return value
    except (OSError, NotImplementedError) as error:  # read-only, full, or a file system without locks
        _LOG.info("no cache in %s: %s", place.parent, error)
        return build() if value is None else value


def cached_arrays(name: str, build: Callable[[], Arrays]) -> Arrays:
    """Read the arrays, mapped from their files, and plain values of the entry `name`, or `build` and keep them."""
    return cached(name, build, _write_arrays, _read_arrays)


def _write_arrays(value: Arrays, folder: Path) -> None:
    arrays, known = value
    for key, array in arrays.items():
        np.save(folder / f"{key}.npy", array)
    forms = {key: [str(array.dtype), *array.shape] for key, array in arrays.items()}
    (folder / "known.json").write_text(json.dumps({"arrays": forms, "known": known}), encoding="utf-8")


def _read_arrays(folder: Path) -> Arrays:
    kept = json.loads((folder / "known.json").read_text(encoding="utf-8"))
    arrays = {key: np.load(folder / f"{key}.npy", mmap_mode="r", allow_pickle=False) for key in kept["arrays"]}
    for key, array in arrays.items():
        if [str(array.dtype), *array.shape] != kept["arrays"][key]:
            raise ValueError(f"{folder}: {key} is {array.dtype} {list(array.shape)}, not {kept['arrays'][key]}")
    return arrays, kept["known"]


def _read_or_none(place: Path, read: Callable[[Path], _T]) -> _T | None:
    if not place.is_dir():
        return None
    try:
        return read(place)
    except (OSError, ValueError, KeyError, EOFError) as error:
        _LOG.info("the cached %s is damaged and is made again: %s", place, error)
        return None


def _publish(value: _T, write: Callable[[_T, Path], None], place: Path) -> None:
    fresh = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    try:
        write(value, fresh)
        if place.exists():  # damaged, or it would have been read; a folder cannot be renamed onto another
            shutil.rmtree(place)
        fresh.rename(place)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
