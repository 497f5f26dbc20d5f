# SPDX-License-Identifier: MIT
"""Output of a worker: of a very long one the beginning and the end are kept."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any

from .._files import OutputError

KEPT_BYTES = 4 << 20  # of the beginning, and as much of the end
_SLACK = 4  # times what is kept: before that nothing is freed
_PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01  # of <linux/falloc.h>


def free_middle(path: Path, kept_bytes: int = KEPT_BYTES) -> None:
    """Free the disk space of the middle of a file that a process is still writing, whose next lines are kept.

    Where the file system cannot, nothing is done: :func:`keep_ends` shortens the file in the end.
    """
    try:
        size = path.stat().st_size
        if size <= _SLACK * kept_bytes:
            return
        with open(path, "r+b") as file:
            middle = size - 2 * kept_bytes
            _fallocate()(file.fileno(), _PUNCH_HOLE_KEEP_SIZE, kept_bytes, middle)
    except OSError:  # it is gone, or not ours to write: a matter of those who write it
        return


@cache
def _fallocate() -> Any:
    function = ctypes.CDLL(None, use_errno=True).fallocate
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return function


def keep_ends(path: Path, kept_bytes: int = KEPT_BYTES) -> None:
    """Cut the middle out of a file that has grown too long, once it is complete; a line there says how much.

    Raises:
        OutputError: the file cannot be written.
    """
    try:
        size = path.stat().st_size
        if size <= 2 * kept_bytes:
            return
        with open(path, "r+b") as file:
            file.seek(size - kept_bytes)
            end = file.read(kept_bytes)
            file.truncate(kept_bytes)
            file.seek(kept_bytes)
            file.write(b"\n[... %d bytes left out ...]\n" % (size - 2 * kept_bytes) + end)
    except FileNotFoundError:
        return
    except OSError as error:
        raise OutputError(f"cannot write {path}: {os.strerror(error.errno or 0)}") from error
