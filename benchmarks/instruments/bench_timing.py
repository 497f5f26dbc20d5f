# SPDX-License-Identifier: MIT
"""Cost of a reading: `StepTimer` and `Spans` against `perf_counter_ns` and a list; NVTX against an empty `with`.

    python benchmarks/instruments/bench_timing.py

All take turns in one process, so that what disturbs the machine disturbs each; the best of each counts. A span is two
readings, its begin and its end.
"""

import contextlib
import time
from collections.abc import Callable

from dnnsuite import timing
from dnnsuite.profiler import nvtx

READINGS, ROUNDS = 20_000, 25
SPANS = timing.Spans(READINGS)


def with_a_list() -> float:
    """Nanoseconds for one reading of the clock, kept."""
    clock = time.perf_counter_ns
    stops: list[int] = []
    items: list[int] = []
    start = timing.now_ns()
    for _ in range(READINGS):
        stops.append(clock())
        items.append(32)
    return (timing.now_ns() - start) / READINGS


def with_a_step_timer() -> float:
    """Nanoseconds for one reading of the clock, kept."""
    timer = timing.StepTimer(READINGS)
    timer.start()
    lap = timer.lap
    start = timing.now_ns()
    for _ in range(READINGS):
        lap(32)
    return (timing.now_ns() - start) / READINGS


def with_begin_and_end() -> float:
    """Nanoseconds for one reading of the clock, kept with name, step, depth and thread."""
    SPANS.clear()
    span = SPANS.span("forward")
    begin, end = span.begin, span.end
    start = timing.now_ns()
    for _ in range(READINGS // 2):
        begin()
        end()
    return (timing.now_ns() - start) / READINGS


def with_spans() -> float:
    """Nanoseconds for one reading of the clock, kept with name, step, depth and thread."""
    SPANS.clear()
    span = SPANS.span("forward")
    start = timing.now_ns()
    for _ in range(READINGS // 2):
        with span:
            pass
    return (timing.now_ns() - start) / READINGS


def with_nothing() -> float:
    """Nanoseconds for one `with` block of nothing."""
    scope = contextlib.nullcontext()
    start = timing.now_ns()
    for _ in range(READINGS):
        with scope:
            pass
    return (timing.now_ns() - start) / READINGS


def with_nvtx() -> float:
    """Nanoseconds for one NVTX range, to which no tool listens."""
    scope = nvtx.range("forward")
    start = timing.now_ns()
    for _ in range(READINGS):
        with scope:
            pass
    return (timing.now_ns() - start) / READINGS


def main() -> None:
    rows = [
        ("StepTimer.lap", with_a_step_timer, "perf_counter_ns + list", with_a_list),
        ("Span.begin, end", with_begin_and_end, "perf_counter_ns + list", with_a_list),
        ("with span", with_spans, "perf_counter_ns + list", with_a_list),
    ]
    if nvtx.available():
        rows.append(("with nvtx.range, no tool", with_nvtx, "with nullcontext", with_nothing))
    best: dict[Callable[[], float], float] = {}
    for _ in range(ROUNDS):
        for way in {way for _, ours, _, theirs in rows for way in (ours, theirs)}:
            best[way] = min(best.get(way, float("inf")), way())
    for name, ours, peer, theirs in rows:
        print(f"{name} {best[ours]:.0f} ns, {peer} {best[theirs]:.0f} ns, ratio {best[ours] / best[theirs]:.2f}")


if __name__ == "__main__":
    main()
