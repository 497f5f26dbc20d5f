# SPDX-License-Identifier: MIT
"""Classes of failure: why a run did not end well, in one word."""

from __future__ import annotations

import errno
import re
import signal
from dataclasses import dataclass

from ..errors import BadData, Error, InvalidArgument, Unavailable

RESULT_EXIT = 1  # a worker that failed and wrote why
DISK_EXIT = 74  # a worker that could not write its results (EX_IOERR of <sysexits.h>)

CLASSES = {
    "oom": "memory ran out", "nan": "a loss became NaN or infinite", "timeout": "it took longer than allowed",
    "killed": "a signal from outside ended a worker",
    "contaminated": "something else on the machine ended it", "data": "the data ran out or cannot be read",
    "unavailable": "something that it needs is not installed", "invalid": "it was timed, but trained nothing",
    "refused": "the job does not take these values", "crash": "any other error",
}  # fmt: skip
# Findings about the thing measured: they would be the same again. --resume tries the others again.
FINAL = frozenset({"oom", "nan", "invalid"})

_MEMORY_WORDS = re.compile(
    r"out of memory|can't allocate memory|cannot allocate memory|bad_alloc|unable to allocate|ALLOC_FAILED"
    r"|Memory allocation still failed|MemoryError|OutOfMemoryError|can't start new thread",
    re.IGNORECASE,
)
_DATA_WORDS = re.compile(r"image file is truncated|broken data stream|cannot identify image file")
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# A worker killed by the kernel while it had less than this part of what it might have was not the one that filled
# the memory.
_INNOCENT = 0.5


class NotFinite(Error):
    """Raised when a loss is NaN or infinite."""


class NotTraining(Error):
    """Raised when a job ran its steps and trained nothing: no weight changed, or its loss stayed the same."""


class TookTooLong(Error):
    """Raised when a part of a run takes longer than allowed."""


@dataclass(frozen=True)
class KernelKill:
    """The kernel's out-of-memory killer struck while a worker ran.

    Attributes:
        scope: `group` if the limit of the worker's own control group was reached, `outside` if that of another group or
            of the machine was, else `unknown`.
        used_bytes: the most that the worker had.
        allowed_bytes: the most that it might have; None where that is not limited or not known.
    """

    scope: str = "unknown"
    used_bytes: int = 0
    allowed_bytes: int | None = None

    @property
    def own(self) -> bool:
        """Tell a worker that used too much itself (True) from a victim of others (False)."""
        if self.scope == "group":
            return True
        small = self.allowed_bytes is not None and 0 < self.used_bytes < _INNOCENT * self.allowed_bytes
        return not small and self.scope != "outside"

    def verdict(self) -> tuple[str, str]:
        """Return (class, message)."""
        had = f"it had {self.used_bytes >> 20} MiB"
        if self.allowed_bytes is not None:
            had += f" of the {self.allowed_bytes >> 20} that it might have"
        if not self.own:
            return "contaminated", f"the kernel killed the worker for memory that others took: {had}"
        where = "its share" if self.scope == "group" else "its share or the machine"
        return "oom", f"memory ran out in {where}, and the kernel killed a worker: {had}"


def classify(error: BaseException) -> str:
    """Failure class of an exception that a job raised."""
    if isinstance(error, NotFinite):
        return "nan"
    if isinstance(error, NotTraining):
        return "invalid"
    if isinstance(error, TookTooLong):
        return "timeout"
    if isinstance(error, (Unavailable, ModuleNotFoundError)):
        return "unavailable"
    if isinstance(error, (StopIteration, BadData)):
        return "data"
    if isinstance(error, InvalidArgument):
        return "refused"
    names = {kind.__name__ for kind in type(error).__mro__}
    if isinstance(error, MemoryError) or "OutOfMemoryError" in names:  # torch's, without importing torch
        return "oom"
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return "oom"
    if isinstance(error, (RuntimeError, OSError, ImportError)) and _MEMORY_WORDS.search(str(error)):
        return "oom"
    if "UnidentifiedImageError" in names or (isinstance(error, OSError) and _DATA_WORDS.search(str(error))):
        return "data"
    return "crash"


def disk_full(error: BaseException) -> bool:
    """True if writing failed for lack of space (or of quota, or at a file-size limit)."""
    return isinstance(error, OSError) and error.errno in _DISK_FULL


def classify_exit(returncode: int, stderr: str, kernel_kill: KernelKill | None = None) -> tuple[str, str]:
    """Return (class, message) of a worker that ended without saying why.

    Args:
        returncode: status as subprocess gives it; -n for signal n.
        stderr: the last lines of the worker's standard error.
        kernel_kill: the kernel's out-of-memory killer struck during the run.
    """
    last = next((line.strip() for line in reversed(stderr.splitlines()) if line.strip()), "")
    if returncode == 0:
        return "crash", "the worker ended early, with status 0 and no result"
    if returncode == -signal.SIGKILL and kernel_kill is not None:
        return kernel_kill.verdict()
    if returncode < 0 and _MEMORY_WORDS.search(stderr):  # abort() after a failed allocation in C++
        return "oom", last
    if returncode in (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP):
        return "killed", f"the worker was ended by {signal.Signals(-returncode).name}"
    if _MEMORY_WORDS.search(last):
        return "oom", last
    name = signal.Signals(-returncode).name if returncode < 0 else f"exit status {returncode}"
    return "crash", f"{last} ({name})" if last else f"the worker ended with {name} and no message"
