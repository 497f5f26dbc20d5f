# SPDX-License-Identifier: MIT
"""The processes that a test has left behind."""

import psutil


def children():
    """All below this process, but for multiprocessing's tracker of resources, which lives as long as it does."""
    left = psutil.Process().children(recursive=True)
    return [process for process in left if not _tracks_resources(process)]


def _tracks_resources(process):
    try:
        return any("multiprocessing.resource_tracker" in word for word in process.cmdline())
    except psutil.NoSuchProcess:
        return True
