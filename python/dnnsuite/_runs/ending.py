# SPDX-License-Identifier: MIT
"""The end of a worker: its work as a result, the result as an exit status, and no library's shutdown."""

from __future__ import annotations

import gc
import os
import resource
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from .._files import OutputError
from ..errors import Error
from .failures import DISK_EXIT, RESULT_EXIT, disk_full
from .plugins import said_of_plugin

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
