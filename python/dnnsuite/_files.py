# SPDX-License-Identifier: MIT
"""Files that are whole or absent: written under a temporary name, then renamed."""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import Error, reason

__all__ = [
    "TEMPORARY",
    "OutputError",
    "cache_folder",
    "read_json",
    "read_tail",
    "regular",
    "replacing",
    "write_json",
    "write_text",
]

TEMPORARY = ".tmp-"  # how the names of unfinished files and directories begin


class OutputError(Error):
    """Raised when results cannot be written: the disk is full, or the directory is not writable."""


def cache_folder() -> Path:
    """Return the folder for files that can be made again: `$DNNSUITE_CACHE`, else `~/.cache/dnnsuite`."""
    return Path(os.environ.get("DNNSUITE_CACHE") or os.path.expanduser("~/.cache/dnnsuite"))


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write; it becomes `path` at the end, or is removed when the body fails.

    Raises:
        OutputError: for any OSError, naming `path`.
    """
    temporary = path.with_name(f"{TEMPORARY}{os.getpid()}-{path.name}")
    try:
        try:
            yield temporary
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OutputError(f"cannot write {path}: {reason(error)}") from error


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(text)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, whole or not at all; NaN and infinities, which JSON has not, become null."""
    write_text(path, json.dumps(_finite(value), indent=1, default=str, allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return value


def regular(path: Path) -> Path:
    """Return `path`, a file that ends: no pipe and no device, whose reader could wait for ever.

    Raises:
        OSError: it is such a thing, or is not there. A folder passes.
    """
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "not a file but a pipe or a device", str(path))
    return path


def read_json(path: Path) -> Any:
    """Read the value in a JSON file.

    Raises:
        Error: the file is missing or damaged; the message names it.
    """
    try:
        return json.loads(regular(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise Error(f"{path}: {reason(error)}") from error


def read_tail(path: Path, size: int = 4096) -> str:
    """Read the end of a text file; empty if there is none."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - size))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
