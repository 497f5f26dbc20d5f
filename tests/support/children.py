# SPDX-License-Identifier: MIT
"""The processes that a test has left behind."""

import psutil

import forked_workers
from waiting import wait_for


def children():
    """All below this process, but for those that live as long as it does."""
    left = psutil.Process().children(recursive=True)
    return [process for process in left if not _stays(process)]


def assert_ends(pid):
    """Wait for a process to end: one that was killed still has to run once to die.

    An orphan that nobody waits for stays as a zombie, which counts as ended.
    """
    wait_for(lambda: _status(pid) in (None, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD))


def _status(pid):
    try:
        return psutil.Process(pid).status()
    except psutil.NoSuchProcess:
        return None


def _stays(process):
    """True for multiprocessing's tracker of resources, and for the hosts of forked programs and workers."""
    if process.pid in forked_workers.hosts():
        return True
    try:
        said = " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return True
    return "multiprocessing.resource_tracker" in said or "forked_program.py" in said
