# SPDX-License-Identifier: MIT
"""Peaks of a GPU, measured by torch: matrix products, and STREAM's triad in its L2 cache and its memory.

Not run on a GPU yet.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch

from dnnsuite.profiler.roofline import Contention, Peaks

_PRODUCTS = {"fp32": torch.float32, "bf16": torch.bfloat16}
_SIZES = (2048, 4096, 8192)
_REPEATS, _SEGMENT_S = 7, 0.05
_TRIADS = 64  # in one graph: a launch by Python takes longer than the L2 cache
_MOST_BYTES = 3 << 30


def event_seconds(call: Callable[[], object], times: int) -> float:
    """Seconds of `times` calls, by events of the stream before and after them."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(times):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


def measure(device: str, report: Callable[[str], None]) -> Peaks:
    """FLOP/s by precision, fp32 without TF32, and bytes/s by level."""
    properties = torch.cuda.get_device_properties(device)
    flops, moved = {}, {}
    for precision, dtype in _PRODUCTS.items():
        report(f"measuring matrix products in {precision} on {device}")
        flops[precision] = max(2.0 * size**3 / best_s(_product(size, dtype, device)) for size in _SIZES)
    capacities = {"L2": properties.L2_cache_size, "memory": 1 << 62}
    sizes = {"L2": properties.L2_cache_size // 2, "memory": min(properties.total_memory // 8, _MOST_BYTES)}
    for level, size in sizes.items():
        report(f"measuring the bandwidth of {level} on {device}")
        elements = triad_elements(size)
        moved[level] = 3 * 4 * elements * _TRIADS / best_s(_triads(elements, device))
    unknown = Contention(math.nan, math.nan, 0)  # nobody sees a GPU's other users
    when = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    return Peaks({"gpu": properties.name}, 1, flops, moved, capacities, unknown, when)


def best_s(call: Callable[[], object], stopwatch: Callable[..., float] = event_seconds) -> float:
    """Seconds of a call in the best of some segments."""
    call()
    times = max(1, round(_SEGMENT_S / max(stopwatch(call, 2) / 2, 1e-7)))
    return min(stopwatch(call, times) / times for _ in range(_REPEATS))


def triad_elements(size: int) -> int:
    """Elements of each of the triad's three fp32 arrays, so that all fit in `size` bytes."""
    return size // (3 * 4)


def _product(size: int, dtype: torch.dtype, device: str) -> Callable[[], object]:
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    return lambda: torch.matmul(a, b, out=out)


def _triads(elements: int, device: str) -> Callable[[], object]:
    b, c = (torch.ones(elements, device=device) for _ in range(2))
    a = torch.empty_like(b)
    torch.add(b, c, alpha=3.0, out=a)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(_TRIADS):
            torch.add(b, c, alpha=3.0, out=a)

    arrays = (a, b, c)  # the graph reads and writes them: they live as long as it does
    return lambda: (graph.replay(), arrays)
