# SPDX-License-Identifier: MIT
"""Memory of training steps that stays in place: every step's tensors lie where the last one's lay.

Without it each large tensor is mapped, its pages faulted in one by one, and unmapped again, in every step: 1.1 to 2.4
times the time of a step of B models. The library that gives torch such an allocator is for one version of torch; under
another malloc is told to keep what it has, which is as fast but may grow by pieces that nothing fits in.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any, NamedTuple

import torch

from .. import _C
from ..ops.library import library_folder


class MemoryUsage(NamedTuple):
    """Bytes of large tensors in use, kept for the next, and in use at most."""

    used_bytes: int
    kept_bytes: int
    most_used_bytes: int


@functools.cache
def _library() -> Any:
    """The allocator for this torch, or None."""
    path = library_folder() / "libdnnsuite_memory.so"
    if not path.is_file():
        return None
    try:
        library = ctypes.CDLL(str(path))
    except OSError:
        return None
    library.dnnsuite_memory_torch.restype = ctypes.c_char_p
    built_for = library.dnnsuite_memory_torch().decode()
    return library if torch.__version__.partition("+")[0] == built_for else None


def keep() -> bool:
    """Has the memory of freed tensors kept for the next ones; False where malloc does it."""
    library = _library()
    if library is None:
        _C.heap_retain()
        return False
    library.dnnsuite_memory_keep()
    return True


def release() -> None:
    """Gives back what is kept; the next tensors take fresh memory."""
    library = _library()
    if library is not None:
        library.dnnsuite_memory_release()


def usage() -> MemoryUsage | None:
    """What large tensors on the CPU take; None under a torch that the allocator was not built for."""
    library = _library()
    if library is None:
        return None
    found = (ctypes.c_int64 * 3)()
    library.dnnsuite_memory_usage(found)
    return MemoryUsage(*found)
