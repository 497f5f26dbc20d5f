# SPDX-License-Identifier: MIT
"""Memory pool for training steps on a CPU: a step's tensors take the pages that the last step's tensors had.

Without it every large tensor is mapped, page-faulted and unmapped again in each step: 1.1 to 2.4 times the time of a
step of B models. It keeps a tenth of the most that was in use at once, or 64 MiB: the steps and the validations of
small models take turns without a page fault.

Scope: torch has one CPU allocator per process. From `hold` to its release every large CPU tensor that the process makes
comes from the pool. A `StepRunner` on a CPU holds the pool from its construction until it is closed or collected; an
array that is trained by hand from its first call until it is collected. When nobody holds it any more, torch's own
allocator serves again, and what the pool kept is given back to the system; tensors of the pool that live on stay valid,
and are unmapped when they are freed.

The pool is built for one version of torch. Under another version malloc is set to keep freed memory meanwhile, which is
as fast but may grow by unusable pieces; the logger `dnnsuite` says so once.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from . import _C
from .ops.library import library_folder


class MemoryUsage(NamedTuple):
    """Bytes of large tensors in use, kept for the next ones, and in use at most."""

    used_bytes: int
    kept_bytes: int
    most_used_bytes: int


@functools.cache
def _found() -> tuple[Any, str]:
    """Return the pool's library and an empty string; or None and the reason why it does not serve under this torch."""
    path = library_folder() / "libdnnsuite_memory.so"
    if not path.is_file():
        return None, f"{path} is missing"
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        return None, str(error)
    if not hasattr(library, "dnnsuite_memory_expect_other_sizes"):
        return None, f"{path} is of another version of dnnsuite"
    library.dnnsuite_memory_torch.restype = ctypes.c_char_p
    built_for = library.dnnsuite_memory_torch().decode()
    if torch.__version__.partition("+")[0] != built_for:
        return None, f"it was built for torch {built_for}, and this is {torch.__version__}"
    _take_offers(library)
    return library, ""


def _take_offers(library: Any) -> None:
    """Let operators offer the allocator the memory for results that torch allocates."""
    operators = ctypes.CDLL(str(library_folder() / "libdnnsuite_ops.so"))
    if hasattr(operators, "dnnsuite_offer_to"):
        functions = library.dnnsuite_memory_offer, library.dnnsuite_memory_close
        operators.dnnsuite_offer_to(*(ctypes.cast(function, ctypes.c_void_p) for function in functions))


def _library() -> Any:
    return _found()[0]


def refusal() -> str:
    """Return why the pool does not serve under this torch; an empty string where it does."""
    return _found()[1]


@functools.cache
def _say_once(reason: str) -> None:
    logging.getLogger("dnnsuite").warning(
        "large CPU tensors come from malloc, not from dnnsuite's memory pool: %s. Steps are as fast, but may take more "
        "memory; reinstall dnnsuite to build the pool for this torch.",
        reason,
    )


def hold_while(owner: Any) -> weakref.finalize[Any, Any]:
    """Let large CPU tensors come from the pool until `owner` is collected, or the returned finalizer is called."""
    release = weakref.finalize(owner, hold())
    release.atexit = False
    return release


_lock = threading.RLock()  # taken again where the garbage collector releases a holder inside `hold`
_holders: set[object] = set()


def hold() -> Callable[[], None]:
    """Let large CPU tensors come from the pool until the returned function is called; more than one may hold it.

    The returned function may be called from any thread, and more than once.
    """
    if refusal():
        _say_once(refusal())
    holder = object()
    with _lock:
        _holders.add(holder)
        if _library() is None:
            _C.heap_retain()
        else:
            _library().dnnsuite_memory_begin()
    return functools.partial(_release, holder)


def _release(holder: object) -> None:
    with _lock:
        if holder not in _holders:
            return
        _holders.discard(holder)
        if _holders:
            return
        if _library() is None:
            _C.heap_release()
        else:
            _library().dnnsuite_memory_end()


def holding() -> bool:
    """Return True while large CPU tensors come from the pool."""
    return bool(_holders) and _library() is not None


def expect_other_sizes() -> None:
    """Let smaller tensors take what the pool keeps now: a step with tensors of other sizes follows."""
    if _library() is not None:
        _library().dnnsuite_memory_expect_other_sizes()


def trim(above_bytes: int = 0) -> None:
    """Give back to the system what the pool keeps, if it is more than `above_bytes`; the next tensors take fresh
    memory."""
    found = usage()
    if found is not None and found.kept_bytes > above_bytes:
        _library().dnnsuite_memory_release()


def usage() -> MemoryUsage | None:
    """Measure what large CPU tensors take; None under a torch that the pool was not built for."""
    if _library() is None:
        return None
    found = (ctypes.c_int64 * 3)()
    _library().dnnsuite_memory_usage(found)
    return MemoryUsage(*found)
