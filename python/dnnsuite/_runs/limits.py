# SPDX-License-Identifier: MIT
"""Limits that a worker sets for itself first, of memory and by its parent's end; and what is kept of its output."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from functools import cache
from pathlib import Path
from typing import Any

from .. import host
from .._files import OutputError
from ..errors import Error

_PR_SET_PDEATHSIG = 1  # <sys/prctl.h>
# Part of the available memory that workers may reserve together; the rest is for this process, the page cache
# and whatever else lives on the machine.
_SHARE = 0.9
SHARES_VARIABLE = "DNNSUITE_SHARES"  # number of processes like this one that divide the machine


def die_with_parent(parent_pid: int) -> None:
    """Let the kernel kill this process when its parent ends in any way.

    Raises:
        Error: the parent is gone already.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise Error(f"prctl(PR_SET_PDEATHSIG): {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent_pid:  # it died before the call above: no signal will come
        raise Error(f"the parent process {parent_pid} is gone")


def limit_memory(limit_bytes: int | None) -> None:
    """Let an allocation beyond `limit_bytes` fail in this process instead of exhausting the machine.

    RLIMIT_DATA counts private writable memory when it is reserved, so allocation fails cleanly
    (`MemoryError`, torch's "can't allocate memory"); reserved but inaccessible address space is free, unlike
    under RLIMIT_AS.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if limit_bytes is None:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    allowed = limit_bytes if hard == resource.RLIM_INFINITY else min(limit_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (allowed, hard))


def offer_to_oom_killer() -> None:
    """Let the kernel's out-of-memory killer prefer this worker to the user's shell."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def peak_rss_bytes() -> int:
    """Largest resident set this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def memory_share_bytes(replicas: int) -> int:
    """Bytes that each of `replicas` workers may reserve so that together they cannot exhaust the machine."""
    beside = max(1, int(os.environ.get(SHARES_VARIABLE) or 1))
    return int(_SHARE * host.available_memory_bytes() / (replicas * beside))


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
