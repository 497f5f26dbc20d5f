# SPDX-License-Identifier: MIT
"""What a reading costs: `StepTimer` against `time.perf_counter_ns` and a list.

    python benchmarks/bench_timing.py

The two take turns in one process, so that what disturbs the machine disturbs both; the best of each counts.
"""

import time
from collections.abc import Callable

from dnnsuite import timing

READINGS, ROUNDS = 20_000, 25


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


def main() -> None:
    best: dict[Callable[[], float], float] = {}
    for _ in range(ROUNDS):
        for way in (with_a_list, with_a_step_timer):
            best[way] = min(best.get(way, float("inf")), way())
    ours, theirs = best[with_a_step_timer], best[with_a_list]
    print(f"StepTimer.lap {ours:.0f} ns, perf_counter_ns + list {theirs:.0f} ns, ratio {ours / theirs:.2f}")


if __name__ == "__main__":
    main()
