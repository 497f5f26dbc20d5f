# SPDX-License-Identifier: MIT
"""Threads and time of the process that measures a job, given on a command line."""

from __future__ import annotations

from ..errors import InvalidArgument


def check_limits(threads: int | None, timeout_s: float) -> None:
    """Refuse numbers that no process can have.

    Raises:
        InvalidArgument: `threads` is below 1, or `timeout_s` no positive number.
    """
    if threads is not None and threads < 1:
        raise InvalidArgument(f"--threads {threads}: must be at least 1")
    if not 0 < timeout_s < float("inf"):
        raise InvalidArgument(f"--timeout {timeout_s}: must be a positive number of seconds")
