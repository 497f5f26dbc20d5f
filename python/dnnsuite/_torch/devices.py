# SPDX-License-Identifier: MIT
"""Torch's profiler, the iterators of its DataLoader, and repair after a CUDA graph's capture that failed.

`torch.cuda.graph` leaves its block by ending the capture. Of one that CUDA has invalidated, that end raises, and what
comes after it does not happen: the stream of the capture stays the thread's current one, the allocator keeps recording
into the graph's pool, and the random generator takes itself for captured, so that the next draw raises.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from .lookup import get, note_lost, one

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


# Streams of another priority come from a pool of their own: streams of torch's own pool come round after 32, and what a
# loader's thread does on the same stream would be captured too.
_PRIORITY = -1

_pool_ends = get("graph pools")


def capture_stream(device: torch.device) -> torch.cuda.Stream:
    """Return a stream to capture graphs on, which no other code is given."""
    return torch.cuda.Stream(device, priority=_PRIORITY)


def first_cause(error: BaseException) -> BaseException:
    """Return the error that a chain of errors began with: the end of an invalid capture raises one that says only that
    there was one before."""
    while error.__context__ is not None:
        error = error.__context__
    return error


def end_failed_capture(device: torch.device, caller: torch.cuda.Stream, pool: Any) -> None:
    """Put stream, allocator and random generator back after a capture on `device` that has failed.

    Args:
        caller: the stream that was current before the capture.
        pool: the memory pool of the capture.
    """
    index = torch.cuda.current_device() if device.index is None else device.index
    with torch.cuda.device(index):  # a stream that is set makes its device the current one
        torch.cuda.set_stream(caller)
        if _pool_ends:
            end, release = _pool_ends
            with contextlib.suppress(RuntimeError):  # the capture's end may have done it
                end(index, pool)
                release(index, pool)
        # An error left by the capture is reported here, not by the next call.
        with contextlib.suppress(RuntimeError):
            torch.cuda.synchronize(device)
        with contextlib.suppress(RuntimeError):
            graph, stream = torch.cuda.CUDAGraph(), capture_stream(device)
            with torch.cuda.stream(stream):  # a capture that ends well ends the generator's too
                graph.capture_begin(capture_error_mode="thread_local")
                torch.zeros(1, device=device)
                graph.capture_end()
