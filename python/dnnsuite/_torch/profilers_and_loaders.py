# SPDX-License-Identifier: MIT
"""Torch's profiler, and the iterators of its DataLoader."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from .lookup import note_lost, one

__all__ = ["abandon_loader", "all_threads_config", "loader_iterator", "loader_workers", "profiler_recording"]

profiler_recording: Callable[[], bool] = one("profiler", lambda: False)
"""True while torch.profiler records in this process."""

_experimental = one("profiler threads", None)


def all_threads_config() -> Any:
    """torch.profiler's configuration that records every thread, and which overload an operator is where it can; None
    where it has none."""
    if _experimental is None:
        return None
    for wanted in ({"capture_overload_names": True}, {}):
        with contextlib.suppress(TypeError):
            return _experimental(profile_all_threads=True, **wanted)
    return None


if all_threads_config() is None:
    note_lost("profiler threads")

loader_iterator: Any = one("data loader", None)
"""The class of a DataLoader's iterators; None where it is lost."""


def loader_workers(iterator: Any) -> int | None:
    """Return the number of worker processes of a DataLoader's iterator; None where it does not say."""
    return getattr(iterator, "_num_workers", None)


def abandon_loader(iterator: Any) -> None:
    """Keep a DataLoader's iterator, whose workers are dead, from waiting for them at its end.

    It would wait for locks that a worker may have held when it was killed, here or when the process ends.
    """
    iterator._shutdown = True
    thread_done = getattr(iterator, "_pin_memory_thread_done_event", None)
    if thread_done is not None:
        thread_done.set()
    for queue in [*getattr(iterator, "_index_queues", ()), getattr(iterator, "_worker_result_queue", None)]:
        if hasattr(queue, "cancel_join_thread"):
            queue.cancel_join_thread()
