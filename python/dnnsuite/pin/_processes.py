# SPDX-License-Identifier: MIT
"""The processes of a run where no control group holds them: known by a variable that they inherit."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from .. import host

RUN_VARIABLE = "DNNSUITE_PIN_RUN"  # run and share, as dnnsuite-12-34-56-ab/student0
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SEARCH_S = 2.0  # at least, between two searches through the processes of the machine
_SEARCH_SHARE = 0.005  # of the time, at most, that is spent in them


def of_run(name: str) -> list[int]:
    """Processes whose environment says that they are of the run, or of a share of it (`run/share`).

    One that starts a program with another environment and then leaves its parent is not seen.
    """
    marks = (f"{RUN_VARIABLE}={name}\0".encode(), f"{RUN_VARIABLE}={name}/".encode())
    found, parents = set(), {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            environment = b"\0" + Path("/proc", entry, "environ").read_bytes() + b"\0"
            state, parent = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue  # ended meanwhile, or another user's
        parents[int(entry)] = int(parent)
        if state not in "ZX" and any(b"\0" + mark in environment for mark in marks):
            found.add(int(entry))
    grown = True
    while grown:  # and their children, whatever their environment
        more = {process for process, parent in parents.items() if parent in found} - found
        found |= more
        grown = bool(more)
    return sorted(found)


class Members:
    """The processes of a run or share, to be read again and again at little cost.

    A search as :func:`of_run` makes takes longer the more runs on the machine. Between two of them the children of
    those that are known are followed; one that left its parent in the meantime is found by the next search.
    """

    def __init__(self, name: str, leader: int) -> None:
        self._name, self._known = name, {leader}
        self._search_at_s = time.monotonic() + _SEARCH_S

    def processes(self) -> list[int]:
        """List them; some may have ended."""
        began_s = time.monotonic()
        if began_s < self._search_at_s:
            self._known = set(host.family(self._known))
        else:
            self._known = set(of_run(self._name))
            ended_s = time.monotonic()
            self._search_at_s = ended_s + max(_SEARCH_S, (ended_s - began_s) / _SEARCH_SHARE)
        return sorted(self._known)


def end(name: str, timeout_s: float = 5.0) -> list[int]:
    """Kill the processes of a run or share; returns those that are still there after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while left := of_run(name):
        for process in left:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
            except PermissionError:
                return left
        if time.monotonic() > deadline:
            return left
        time.sleep(0.005)
    return []


def resident_bytes(processes: Iterable[int]) -> int:
    """Sum the processes' anonymous memory, without pages of files, in bytes."""
    total = 0
    for process in processes:
        try:
            fields = Path(f"/proc/{process}/statm").read_text().split()
        except OSError:
            continue
        total += (int(fields[1]) - int(fields[2])) * _PAGE
    return total
