# SPDX-License-Identifier: MIT
"""Starters of workers: as processes of this machine, or in shares of a partition."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..pin import Outcome, Partition, Running
from .failures import KernelKill


@dataclass(frozen=True)
class Ended:
    """The end of a process, and what it used."""

    returncode: int
    kernel_kill: KernelKill | None = None
    held: Mapping[str, Any] = field(default_factory=dict)


class Started(Protocol):
    """A process that leads a session of its own."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def terminate(self) -> None: ...
    def finish(self) -> Ended: ...


class Starter(Protocol):
    """Way to start the process of a worker."""

    def start(
        self, index: int, command: Sequence[str], variables: Mapping[str, str], files: tuple[int, int, int]
    ) -> Started: ...


def start_process(
    command: Sequence[str], variables: Mapping[str, str], files: tuple[int, int, int]
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own: Ctrl-C reaches only the parent, which ends the group."""
    stdin, stdout, stderr = files
    return subprocess.Popen(
        list(command), stdin=stdin, stdout=stdout, stderr=stderr, env=dict(variables), start_new_session=True
    )


class Direct:
    """Starter of workers as processes of this machine, each in a session of its own.

    Args:
        allowed_bytes: the most memory that each of them might have, to tell its own excess from that of others.
    """

    def __init__(self, allowed_bytes: int | None = None) -> None:
        self._allowed_bytes = allowed_bytes

    def start(
        self, index: int, command: Sequence[str], variables: Mapping[str, str], files: tuple[int, int, int]
    ) -> Started:
        """Start a process as :func:`start_process` does."""
        return _Direct(start_process(command, variables, files), self._allowed_bytes)


class _Direct:
    def __init__(self, process: subprocess.Popen[bytes], allowed_bytes: int | None) -> None:
        self._process, self._allowed_bytes = process, allowed_bytes
        self._peak_bytes = 0

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        return self._wait(os.WNOHANG)

    def _wait(self, options: int) -> int | None:
        """Wait as Popen does, and note the peak memory of the process."""
        if self._process.returncode is None:
            pid, status, usage = os.wait4(self._process.pid, options)
            if pid:
                self._process.returncode = os.waitstatus_to_exitcode(status)
                self._peak_bytes = usage.ru_maxrss * 1024
        return self._process.returncode

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def finish(self) -> Ended:
        self._signal(signal.SIGKILL)
        code = self._wait(0)
        assert code is not None
        return Ended(code, KernelKill("", self._peak_bytes, self._allowed_bytes))

    def _signal(self, number: signal.Signals) -> None:
        # The group outlives its leader as long as a child of it runs. Its id is not reused before that, and a leader
        # that has been waited for and had no children gives ProcessLookupError.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


class InShares:
    """Starter of worker i in the i-th of some shares of a partition."""

    def __init__(self, partition: Partition, shares: Sequence[int | str]) -> None:
        self._partition, self._shares = partition, shares

    def start(
        self, index: int, command: Sequence[str], variables: Mapping[str, str], files: tuple[int, int, int]
    ) -> Started:
        """Start processes in a share, with the arguments of :meth:`Partition.start`."""
        share = self._shares[index]
        running = self._partition.start(share, command, env=variables, files=files)
        return _InShare(running, running.slot.memory_bytes)


class _InShare:
    def __init__(self, running: Running, allowed_bytes: int) -> None:
        self._running, self._allowed_bytes = running, allowed_bytes

    @property
    def pid(self) -> int:
        return self._running.pid

    def poll(self) -> int | None:
        return self._running.poll()

    def terminate(self) -> None:
        """Do nothing: a share ends everything in it at once, in `finish`."""

    def finish(self) -> Ended:
        outcome = self._running.finish(0)
        return Ended(outcome.returncode, self._kernel_kill(outcome), outcome.to_dict())

    def _kernel_kill(self, outcome: Outcome) -> KernelKill:
        scope = (outcome.oom_scope or "unknown") if outcome.oom_killed else ""
        return KernelKill(scope, outcome.memory_peak_bytes or 0, self._allowed_bytes)
