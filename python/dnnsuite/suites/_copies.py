# SPDX-License-Identifier: MIT
"""The copies of one job at once, each in its share: started, let go together, waited for, ended."""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._files import write_json
from .._runs.interrupts import deferred
from ..pin import Outcome, Partition, Running

__all__ = ["SPEC", "run_copies"]

SPEC = "spec.json"
PLACE = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
_TICK_S = 0.1


@dataclass
class _Copy:
    running: Running
    runner: socket.socket  # a byte from it: it is set up; a byte to it: all are; its end: it has ended
    ready: bool = False


def run_copies(
    partition: Partition, shares: Sequence[int | str], specs: Sequence[dict[str, Any]],
    variables: Mapping[str, str], timeout_s: float, tick: Callable[[], None] = lambda: None,
) -> list[Outcome]:  # fmt: skip
    """Run one worker in each share, all together; one that fails leaves the others alone.

    Args:
        specs: what :mod:`dnnsuite.suites.worker` reads; each names its own existing `directory`.
        variables: added to this process's own for every worker.
        timeout_s: for all together; what still runs then is ended with everything that it started.
        tick: called about ten times a second.

    Raises:
        OutputError: a directory cannot be written.
        LaunchError: a worker cannot be started; the others are ended.
    """
    deadline_s = time.monotonic() + timeout_s
    copies: list[_Copy] = []
    outcomes: list[Outcome] = []
    try:
        for share, spec in zip(shares, specs, strict=True):
            with deferred():
                copies.append(_started(partition, share, spec, variables))
        _wait(copies, deadline_s, tick)
    finally:
        with deferred():
            outcomes += [copy.running.finish(0) for copy in copies]
            for copy in copies:
                copy.runner.close()
    return outcomes


def _started(
    partition: Partition, share: int | str, spec: dict[str, Any], variables: Mapping[str, str]
) -> _Copy:
    directory = Path(spec["directory"])
    write_json(directory / SPEC, {**spec, "parent_pid": os.getpid()})
    mine, its = socket.socketpair()
    with ExitStack() as files:
        files.enter_context(its)
        out, err = (
            files.enter_context(open(directory / f"{name}.txt", "wb")) for name in ("stdout", "stderr")
        )
        try:
            running = partition.start(
                share, _command(spec["processes"], directory / SPEC),
                env={**_without_a_place(), **variables}, files=(its.fileno(), out.fileno(), err.fileno()),
            )  # fmt: skip
        except BaseException:
            mine.close()
            raise
    return _Copy(running, mine)


def _command(processes: int, spec: Path) -> list[str]:
    """The worker, or torchrun with that many of them."""
    worker = ["-m", "dnnsuite.suites.worker", str(spec)]
    if processes == 1:
        return [sys.executable, *worker]
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return [sys.executable, *torchrun, *worker]


def _without_a_place() -> dict[str, str]:
    """This process's environment, but not which of several processes it is itself."""
    return {name: value for name, value in os.environ.items() if name not in PLACE}


def _wait(copies: Sequence[_Copy], deadline_s: float, tick: Callable[[], None]) -> None:
    """Until all have ended or time is over. Those that are still there begin when each of them is set up."""
    alive, begun = list(copies), False
    listening = {copy.runner: copy for copy in copies}
    while alive and (left_s := deadline_s - time.monotonic()) > 0:
        readable, _, _ = select.select(list(listening), [], [], min(left_s, _TICK_S))
        for runner in readable:
            if _received(runner):
                listening[runner].ready = True
            else:
                del listening[runner]
        alive = [copy for copy in alive if copy.running.poll() is None]
        if not begun and alive and all(copy.ready for copy in alive):
            begun = True
            for copy in alive:
                _send(copy.runner)
        tick()


def _received(runner: socket.socket) -> bool:
    try:
        return bool(runner.recv(1))
    except OSError:  # it was killed
        return False


def _send(runner: socket.socket) -> None:
    with suppress(OSError):  # it has ended meanwhile, which is seen in the next round
        runner.sendall(b"g")
