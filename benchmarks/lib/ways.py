# SPDX-License-Identifier: MIT
"""Shared by benchmarks of whole training steps: ways that take turns, replicas in processes, one table.

A way trains all B models for a number of steps, and has done so when it returns: on a GPU, too. With one thread of a
CPU it is rated by the CPU time of its processes, so that a busy neighbour does not decide; else by wall time. In every
round each way runs for about the same time, so whatever drifts drifts for all.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from setting import cpu_clock

from dnnsuite._runs.monitor import all_cores
from dnnsuite._runs.turn_session import Way, take_turns_here
from dnnsuite._runs.turns import Goal
from dnnsuite.errors import Error

Seconds = dict[str, list[float]]
_WARM_S = 1.0
_UNTIL_SETTLED = 64  # steps, at most: trials of shards' widths take a dozen, of a loop another
_GRACE_S = 10.0  # in which a process that is not needed any more ends by itself


def repeat(step: Callable[[], Any], finish: Callable[[], Any] = lambda: None) -> Way:
    """A way from a function that trains one step of all models."""

    def run(steps: int) -> None:
        for _ in range(steps):
            step()
        finish()

    return run


def settle(runner: Any, way: Way) -> None:
    """Train until a StepRunner has chosen how: its trials are steps of other speeds, and would be taken for its own."""
    for _ in range(_UNTIL_SETTLED):
        way(1)
        if runner.settled:
            return
    print(f"dnnsuite: still undecided after {_UNTIL_SETTLED} steps: {runner.mode}", file=sys.stderr)


class Closing:
    """A way that holds something until it is closed."""

    def __init__(self, way: Way, close: Callable[[], None]) -> None:
        self._way, self.close = way, close

    def __call__(self, steps: int) -> float | None:
        return self._way(steps)


def close(way: Way) -> None:
    """Lets go of what a way holds, if it holds anything."""
    getattr(way, "close", lambda: None)()


def _replica(connection: Any, threads: int, make: Callable[..., Way], arguments: tuple[Any, ...]) -> None:
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, whose end closes the pipe
    torch.set_num_threads(threads)
    try:
        way = make(*arguments)
        connection.send(0.0)
        while True:
            steps = connection.recv()
            begin = cpu_clock()
            way(steps)
            connection.send(cpu_clock() - begin)
    except (EOFError, BrokenPipeError):  # the parent is done
        return
    except Exception as error:
        connection.send(f"{type(error).__name__}: {error}")


class Replicas:
    """A way of processes, each of which has one of its own. Raises Error where one of them cannot."""

    def __init__(self) -> None:
        self._members: list[tuple[Any, Any]] = []

    def start(self, threads: int, make: Callable[..., Way], arguments: tuple[Any, ...]) -> None:
        context = multiprocessing.get_context("spawn")
        mine, theirs = context.Pipe()
        process = context.Process(target=_replica, args=(theirs, threads, make, arguments), daemon=True)
        process.start()
        theirs.close()  # or the end of a replica that fails is never seen
        self._members.append((mine, process))

    def wait(self) -> float:
        """Until all have answered: the sum of their CPU seconds."""
        answers = [self._answer(end) for end, _ in self._members]
        for answer in answers:
            if isinstance(answer, str):
                raise Error(f"a replica failed with {answer}")
        return sum(answers)

    @staticmethod
    def _answer(end: Any) -> Any:
        try:
            return end.recv()
        except EOFError:
            return "no word: it was killed, for want of memory as a rule"

    def __call__(self, steps: int) -> float:
        for end, _ in self._members:
            end.send(steps)
        return self.wait()

    def close(self) -> None:
        for end, _ in self._members:
            end.close()
        for _, process in self._members:
            process.join(_GRACE_S)
            process.terminate()  # only where it has not ended, which a daemon of NVIDIA's may mind
            process.join()
        self._members.clear()


def concurrent(
    make: Callable[..., Way],
    arguments: list[tuple[Any, ...]],
    threads: int,
    environment: Mapping[str, str] | None = None,
) -> Replicas:
    """One process per entry of `arguments`, each with the way that `make` gives for it; they share the threads.

    `environment` is theirs beside this process's own.
    """
    replicas = Replicas()
    try:
        with _variables(environment or {}):
            for own in arguments:
                replicas.start(max(1, threads // len(arguments)), make, own)
        replicas.wait()
    except BaseException:
        replicas.close()
        raise
    return replicas


@contextlib.contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    """Environment variables that a process started meanwhile inherits."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def load(name: str) -> Callable[..., Any]:
    """Import the function that `MODULE:FUNCTION` names."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


def timed(way: Way, steps: int, clock: Callable[[], float]) -> float:
    """Seconds that `way` takes for `steps` steps by `clock`; other processes' CPU time counts where CPU time does."""
    begin = clock()
    elsewhere = way(steps) or 0.0
    seconds = clock() - begin
    return seconds + elsewhere if clock is cpu_clock else seconds


def _warm_up(way: Way, steps: int, clock: Callable[[], float]) -> float:
    """Seconds of a step after these; a slow way has fewer."""
    first_s = timed(way, 1, clock)
    left = max(2, min(steps - 1, round(_WARM_S / max(first_s, 1e-6))))
    timed(way, left - 1, clock)
    return timed(way, 1, clock)


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
    """Seconds of a step of one model, per way and round. A round has `steps` steps of each, or about `segment_s`.

    A way has `warmup` steps before, or as many as it takes a second for, three at least.
    """
    for name, way in ways.items():
        progress(f"warming up {name}")
        _warm_up(way, warmup, clock)
    found = take_turns_here(
        ways, Goal(rounds=rounds), cores=all_cores(), clock=clock, by_cpu_time=clock is cpu_clock, steps=steps,
        segment_s=segment_s, tell=lambda made: progress(f"round {max(map(len, made.blocks.values()))} of {rounds}"),
    )  # fmt: skip
    if notes := {found.rate(name).disturbed for name in ways} - {""}:
        print(f"dnnsuite: not quiet: {min(notes)}", file=sys.stderr)
    return {name: [each / B for each in found.seconds(name)] for name in ways}


def report(title: str, seconds: Seconds) -> None:
    """Per way: best and median milliseconds of a step of one model, and how many times faster than the first way."""
    base = next(iter(seconds.values()))
    print(title)
    for name, values in seconds.items():
        ratio = statistics.median(b / v for b, v in zip(base, values, strict=True))
        best, middle = 1e3 * min(values), 1e3 * statistics.median(values)
        print(
            f"{name:>20}  {best:9.3f} ms best  {middle:9.3f} ms median  {min(base) / min(values):6.2f}x ({ratio:.2f}x)",
            flush=True,
        )
