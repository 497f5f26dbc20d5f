# SPDX-License-Identifier: MIT
"""Why a run failed, in one word: oom, nan, timeout, killed, crash."""

from __future__ import annotations

import errno
import re
import signal

from ..errors import Error

__all__ = ["CLASSES", "DISK_EXIT", "RESULT_EXIT", "NotFinite", "classify", "classify_exit", "disk_full"]

RESULT_EXIT = 1  # a worker that failed and wrote why
DISK_EXIT = 74  # a worker that could not write its results (EX_IOERR of <sysexits.h>)

CLASSES = {
    "oom": "memory ran out",
    "nan": "a loss became NaN or infinite",
    "timeout": "it took longer than allowed",
    "killed": "a signal from outside ended a worker",
    "crash": "any other error",
}

_MEMORY_WORDS = re.compile(
    r"out of memory|can't allocate memory|cannot allocate memory|bad_alloc|unable to allocate|ALLOC_FAILED"
    r"|Memory allocation still failed|MemoryError|OutOfMemoryError|can't start new thread",
    re.IGNORECASE,
)
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class NotFinite(Error):
    """A loss is NaN or infinite."""


def classify(error: BaseException) -> str:
    """Failure class of an exception a job raised."""
    if isinstance(error, NotFinite):
        return "nan"
    names = {kind.__name__ for kind in type(error).__mro__}
    if isinstance(error, MemoryError) or "OutOfMemoryError" in names:  # torch's, without importing torch
        return "oom"
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return "oom"
    if isinstance(error, (RuntimeError, OSError, ImportError)) and _MEMORY_WORDS.search(str(error)):
        return "oom"
    return "crash"


def disk_full(error: BaseException) -> bool:
    """Whether writing failed for lack of space (or of quota, or at a file-size limit)."""
    return isinstance(error, OSError) and error.errno in _DISK_FULL


def classify_exit(returncode: int, stderr: str, kernel_killed: bool) -> tuple[str, str]:
    """(class, message) of a worker that ended without saying why.

    Args:
        returncode: as subprocess gives it; -n for signal n.
        stderr: the last lines of the worker's standard error.
        kernel_killed: the kernel's out-of-memory killer struck during the run.
    """
    last = next((line.strip() for line in reversed(stderr.splitlines()) if line.strip()), "")
    if returncode == -signal.SIGKILL and kernel_killed:
        return "oom", "the kernel killed the worker for memory"
    if returncode < 0 and _MEMORY_WORDS.search(stderr):  # abort() after a failed allocation in C++
        return "oom", last
    if returncode in (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP):
        return "killed", f"the worker was ended by {signal.Signals(-returncode).name}"
    if _MEMORY_WORDS.search(last):
        return "oom", last
    name = signal.Signals(-returncode).name if returncode < 0 else f"exit status {returncode}"
    return "crash", f"{last} ({name})" if last else f"the worker ended with {name} and no message"
