# SPDX-License-Identifier: MIT
"""Provenance of training data for the record, the choice of a data source, the cache of prepared data, and torchvision
where its compiled operators do not load.

The cache folder is shared between processes and safe if one of them dies in the middle. An entry is a folder named by a
hash of everything that went into it, so it never goes stale. It is written under a temporary name and renamed, so it is
whole or absent. Without write access the data are built each time.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import importlib.util
import json
import logging
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from .._files import cache_folder
from .._lazy import npt, torch
from .._lazy import numpy as np
from ..errors import InvalidArgument, Unavailable, did_you_mean

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

    @classmethod
    def of(cls, source: str, licence: str, samples: npt.NDArray[Any]) -> Origin:
        """Return the provenance of samples `[N, ...]`, with the hash of their bytes."""
        return cls(source, licence, len(samples), hashlib.sha256(samples.tobytes()).hexdigest())

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


# What torchvision gives fake kernels at import, whether or not its library is there.
_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_kept: list[Any] = []  # a torch.library.Library takes its schemas with it when it goes


def import_torchvision() -> ModuleType:
    """Import torchvision, also beside a torch that its compiled operators do not fit.

    PyPI has torchvision for CUDA only; beside a CPU build of torch its library does not load, and `import torchvision`
    fails, which takes transformers with it. This declares the operators whose absence is fatal, then imports.
    Models, transforms and most datasets work so; functions over the compiled operators (`ops.nms`, detection
    models, `io.decode_image`) say that they are missing. Where the library loads, this is `import torchvision`.
    Call it before the first import of transformers.

    Raises Unavailable if torchvision is not installed.
    """
    if "torchvision" in sys.modules:
        return sys.modules["torchvision"]
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        raise Unavailable("the package torchvision", "this Python", "pip install torchvision==0.28.0")
    if not _loads(Path(spec.origin).parent):
        _declare()
    return importlib.import_module("torchvision")


def torchvision_loads() -> bool | None:
    """Return True if torchvision's compiled operators load beside this torch; None where it is not installed."""
    spec = importlib.util.find_spec("torchvision")
    return None if spec is None or spec.origin is None else _loads(Path(spec.origin).parent)


def _loads(folder: Path) -> bool:
    """Return True if the compiled operators in `folder` are loaded, or can be."""
    for library in (*folder.glob("_C*.so"), *folder.glob("_C*.pyd")):
        try:
            torch.ops.load_library(str(library))
        except OSError:
            continue
        return True
    return False


def _declare() -> None:
    """Declare the operators of `_SCHEMAS` that are missing, without an implementation."""
    missing = [schema for schema in _SCHEMAS if not hasattr(torch.ops.torchvision, schema.split("(")[0])]
    if missing:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for schema in missing:
            library.define(schema)
        _kept.append(library)
