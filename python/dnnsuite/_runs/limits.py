# SPDX-License-Identifier: MIT
"""Limits that a worker sets for itself first: memory below the machine's, and an end with its parent."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from pathlib import Path

from .. import host
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
