# SPDX-License-Identifier: MIT
"""Repair after a CUDA graph's capture that failed.

`torch.cuda.graph` leaves its block by ending the capture. Of one that CUDA has invalidated, that end raises, and what
comes after it does not happen: the stream of the capture stays the thread's current one, the allocator keeps recording
into the graph's pool, and the random generator takes itself for captured, so that the next draw raises.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from .lookup import get

__all__ = ["capture_stream", "end_failed_capture", "first_cause"]

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
