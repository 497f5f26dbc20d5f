# SPDX-License-Identifier: MIT
"""How a worker ends: with its output written, and without the shutdown of interpreter and libraries."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from .failures import DISK_EXIT, disk_full

__all__ = ["leave"]


def leave(status: int) -> NoReturn:
    """End this process with `status`, or as one that cannot write where its last output found no room.

    Shutdown can hang or abort (gloo, CUDA); what matters is on disk already.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            status = DISK_EXIT if disk_full(error) else status
    os._exit(status)
