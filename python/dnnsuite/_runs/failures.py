# SPDX-License-Identifier: MIT
"""Classes of failure: why a run did not end well, in one word; and the end of a worker, with a result and a status."""

from __future__ import annotations

import errno
import gc
import os
import re
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from .._files import OutputError
from ..errors import BadData, Error, InvalidArgument, Unavailable
from .spec import said_of_plugin

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


_KINDS: dict[str, tuple[type[BaseException], ...]] = {
    "nan": (NotFinite,), "invalid": (NotTraining,), "timeout": (TookTooLong,), "data": (StopIteration, BadData),
    "unavailable": (Unavailable, ModuleNotFoundError), "refused": (InvalidArgument,),
}  # fmt: skip


def classify(error: BaseException) -> str:
    """Failure class of an exception that a job raised."""
    for failure, kinds in _KINDS.items():
        if isinstance(error, kinds):
            return failure
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


Result = dict[str, Any]


def attempt(body: Callable[[], Result], classify: Callable[[BaseException], str]) -> Result:
    """Call `body`; return its findings with status ok, or status failed, failure (as `classify` says) and message.

    Raises:
        OutputError: the disk is full; nothing else passes through.
    """
    try:
        return {"status": "ok", **body()}
    except OutputError:
        raise
    except BaseException as error:
        with suppress(OSError):
            traceback.print_exc()
        if disk_full(error):
            raise OutputError(str(error)) from error
        failure = classify(error)
        own = "" if failure == "oom" or isinstance(error, Error) else said_of_plugin(error)  # memory ends anywhere
        message = own[:500] or (str(error).splitlines() or [""])[0][:500] or type(error).__name__
        failed = {"status": "failed", "failure": failure, "message": message}
    # Out of the except block: the traceback held the job's tensors. Writing needs a little memory too.
    gc.collect()
    resource.setrlimit(resource.RLIMIT_DATA, (resource.getrlimit(resource.RLIMIT_DATA)[1],) * 2)
    return failed


def status_of(work: Callable[[], Result]) -> int:
    """Exit status for a result that `work` has written."""
    try:
        result = work()
    except OutputError as error:
        with suppress(OSError):
            print(error, file=sys.stderr)
        return DISK_EXIT
    return 0 if result["status"] == "ok" else RESULT_EXIT


def leave(status: int) -> NoReturn:
    """End this process with `status`, or with that of a full disk where its last output found no room.

    Shutdown can hang or abort (gloo, CUDA); what matters is on disk already.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            status = DISK_EXIT if disk_full(error) else status
    os._exit(status)
