# SPDX-License-Identifier: MIT
"""Start the workers of one run, let them begin together, wait, and say what became of them."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import host
from .._files import OutputError, read_json, read_tail, write_json
from .._runs.failures import DISK_EXIT, classify_exit
from .._runs.interrupts import deferred
from ..errors import Error
from .protocol import GO_FD, READY_FD

__all__ = ["Outcome", "run_group"]

_TICK_S = 0.5
_TERM_GRACE_S = 3.0


@dataclass
class Outcome:
    """What became of a group of workers: the result of each, or the failure that ended them all."""

    failure: str | None  # a class of failures.CLASSES, None when all is well
    message: str
    results: list[dict[str, Any]]
    seconds: float

    @property
    def ok(self) -> bool:
        return self.failure is None


def run_group(
    specs: Sequence[dict[str, Any]],
    environments: Sequence[dict[str, str]],
    timeout_s: float,
    tick: Callable[[], None] = lambda: None,
) -> Outcome:
    """Run one worker per spec, all together; the first to fail ends the others.

    Args:
        specs: what :mod:`dnnsuite.workflow.worker` reads; each names its own existing `directory`.
        environments: variables added to this process's own, per worker.
        timeout_s: wall-clock limit for the whole group.
        tick: called about twice a second while waiting.

    Raises:
        OutputError: a worker, or this process, cannot write into its directory.
        Error: a worker cannot be started at all.
    """
    started_s = time.monotonic()
    kills_before = host.oom_kills()
    group = _Group()
    try:
        group.start(specs, environments)
        cause = group.wait(started_s + timeout_s, tick)
    finally:
        group.end()
    return _outcome(group, specs, cause, host.oom_kills() > kills_before, time.monotonic() - started_s)


class _Group:
    """Worker processes with the two pipes they share with this one."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []
        self._pidfds: list[int] = []
        self._ready_r, self._ready_w = os.pipe()
        self._go_r, self._go_w = os.pipe()

    def start(self, specs: Sequence[dict[str, Any]], environments: Sequence[dict[str, str]]) -> None:
        for spec, environment in zip(specs, environments, strict=True):
            directory = Path(spec["directory"])
            write_json(directory / "spec.json", {**spec, "parent_pid": os.getpid()})
            with ExitStack() as files, deferred():
                try:
                    out, err = (files.enter_context(open(directory / f"{name}.txt", "wb"))
                                for name in ("stdout", "stderr"))  # fmt: skip
                    process = subprocess.Popen(
                        [sys.executable, "-m", "dnnsuite.workflow.worker", str(directory / "spec.json")],
                        stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                        env={**os.environ, **environment, **self._pipes()},
                        pass_fds=(self._ready_w, self._go_r),
                        start_new_session=True,  # Ctrl-C reaches the parent alone, which ends the group
                    )  # fmt: skip
                except OSError as error:
                    raise Error(f"cannot start a worker: {error}") from error
                self.processes.append(process)
                self._pidfds.append(os.pidfd_open(process.pid))

    def _pipes(self) -> dict[str, str]:
        return {READY_FD: str(self._ready_w), GO_FD: str(self._go_r)}

    def wait(self, deadline_s: float, tick: Callable[[], None]) -> int | str | None:
        """Until all have ended well (None), or one has not (its index), or time is over ("timeout")."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._ready_r, selectors.EVENT_READ, None)
            for index, pidfd in enumerate(self._pidfds):
                selector.register(pidfd, selectors.EVENT_READ, index)
            ready, running = 0, len(self.processes)
            while running:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    return "timeout"
                for key, _ in selector.select(min(left_s, _TICK_S)):
                    if key.data is None:
                        ready += len(os.read(self._ready_r, len(self.processes)))
                        if ready == len(self.processes):
                            selector.unregister(self._ready_r)
                            os.write(self._go_w, b"g" * ready)
                    else:
                        selector.unregister(key.fd)
                        running -= 1
                        if self.processes[key.data].wait() != 0:
                            return int(key.data)
                tick()
        return None

    def end(self) -> None:
        """What still runs is asked to end, then made to; nothing is left, not even children of workers."""
        with deferred():
            self._signal_all(signal.SIGTERM)
            grace_until = time.monotonic() + _TERM_GRACE_S
            for process in self.processes:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, grace_until - time.monotonic()))
            self._signal_all(signal.SIGKILL)
            for process in self.processes:
                process.wait()
            for fd in (*self._pidfds, self._ready_r, self._ready_w, self._go_r, self._go_w):
                os.close(fd)

    def _signal_all(self, number: signal.Signals) -> None:
        for process in self.processes:
            # The group outlives its leader as long as a child of it runs. Its id is not reused before that,
            # and a leader that has been waited for and had no children gives ProcessLookupError.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)


def _outcome(
    group: _Group,
    specs: Sequence[dict[str, Any]],
    cause: int | str | None,
    kernel_killed: bool,
    seconds: float,
) -> Outcome:
    results: list[dict[str, Any]] = []
    for process, spec in zip(group.processes, specs, strict=True):
        directory = Path(spec["directory"])
        stderr = read_tail(directory / "stderr.txt")
        if process.returncode == DISK_EXIT:
            told = stderr.strip().splitlines()  # nothing, when even that found no room
            raise OutputError(told[-1] if told else f"cannot write {directory}: no space left")
        path = directory / "result.json"
        if path.is_file():
            results.append(read_json(path))
        else:
            failure, message = classify_exit(process.returncode, stderr, kernel_killed)
            results.append({"status": "failed", "failure": failure, "message": message})
    if cause is None:
        return Outcome(None, "", results, seconds)
    if isinstance(cause, str):
        return Outcome("timeout", f"not finished after {seconds:.0f} s", results, seconds)
    who = f"replica {cause}: " if len(results) > 1 else ""
    failed = results[cause]
    return Outcome(
        failed.get("failure", "crash"), who + failed.get("message", "no message"), results, seconds
    )
