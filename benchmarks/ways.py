# SPDX-License-Identifier: MIT
"""What the benchmarks of whole training steps share: ways that take turns, replicas in processes, one table.

A way trains all B models for a number of steps. With one thread it is rated by the CPU time of its processes, so that
a busy neighbour does not decide; with several by wall time. In every round each way runs for about the same time, so
whatever drifts drifts for all.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import signal
import statistics
import time
from collections.abc import Callable
from typing import Any

Way = Callable[[int], float | None]  # trains so many steps; CPU seconds of other processes, if it has any
Seconds = dict[str, list[float]]


def cpu_clock() -> float:
    """CPU seconds of this process, all threads."""
    return time.process_time()


def clock_for(threads: int) -> Callable[[], float]:
    return cpu_clock if threads == 1 else time.perf_counter


def repeat(step: Callable[[], Any], finish: Callable[[], Any] = lambda: None) -> Way:
    """A way from a function that trains one step of all models."""

    def run(steps: int) -> None:
        for _ in range(steps):
            step()
        finish()

    return run


def _replica(connection: Any, threads: int, make: Callable[..., Way], arguments: tuple[Any, ...]) -> None:
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, whose end closes the pipe
    torch.set_num_threads(threads)
    way = make(*arguments)
    connection.send("ready")
    with contextlib.suppress(EOFError):  # the parent is done
        while True:
            steps = connection.recv()
            begin = cpu_clock()
            way(steps)
            connection.send(cpu_clock() - begin)


def concurrent(make: Callable[..., Way], arguments: list[tuple[Any, ...]], threads: int) -> Way:
    """One process per entry of `arguments`, each with the way that `make` gives for it; they share the threads."""
    context = multiprocessing.get_context("spawn")
    ends = []
    for own in arguments:
        mine, theirs = context.Pipe()
        count = max(1, threads // len(arguments))
        context.Process(target=_replica, args=(theirs, count, make, own), daemon=True).start()
        theirs.close()  # or the end of a replica that fails is never seen
        ends.append(mine)
    for end in ends:
        end.recv()

    def run(steps: int) -> float:
        for end in ends:
            end.send(steps)
        return sum(end.recv() for end in ends)

    return run


def load(name: str) -> Callable[..., Any]:
    """What `MODULE:FUNCTION` names."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


def timed(way: Way, steps: int, clock: Callable[[], float]) -> float:
    """Seconds that `way` takes for `steps` steps by `clock`; other processes' CPU time counts where CPU time does."""
    begin = clock()
    elsewhere = way(steps) or 0.0
    seconds = clock() - begin
    return seconds + elsewhere if clock is cpu_clock else seconds


def measure(
    ways: dict[str, Way],
    B: int,
    rounds: int,
    warmup: int,
    clock: Callable[[], float] = time.perf_counter,
    steps: int | None = None,
    segment_s: float = 0.3,
    progress: Callable[[str], None] = lambda text: None,
) -> Seconds:
    """Seconds of a step of one model, per way and round. A round has `steps` steps of each, or about `segment_s`."""
    counts = {}
    for name, way in ways.items():
        progress(f"warming up {name}")
        way(warmup)
        counts[name] = steps or max(1, min(1000, round(segment_s * 2 / max(timed(way, 2, clock), 1e-6))))
    seconds: Seconds = {name: [] for name in ways}
    for number in range(rounds):
        progress(f"round {number + 1} of {rounds}")
        for name, way in ways.items():
            seconds[name].append(timed(way, counts[name], clock) / (counts[name] * B))
    return seconds


def report(title: str, seconds: Seconds) -> None:
    """Per way: best and median milliseconds of a step of one model, and how many times faster than the first way."""
    base = next(iter(seconds.values()))
    print(title)
    for name, values in seconds.items():
        ratio = statistics.median(b / v for b, v in zip(base, values, strict=True))
        best, middle = 1e3 * min(values), 1e3 * statistics.median(values)
        print(
            f"{name:>20}  {best:9.3f} ms best  {middle:9.3f} ms median  {min(base) / min(values):6.2f}x"
            f" ({ratio:.2f}x)",
            flush=True,
        )
