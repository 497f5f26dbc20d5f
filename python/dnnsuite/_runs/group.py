# SPDX-License-Identifier: MIT
"""Group of workers: start, end, and verdict."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from .._files import OutputError, read_json, read_tail
from ..errors import Error
from .failures import DISK_EXIT, classify_exit
from .interrupts import worker_ended, worker_started
from .limits import keep_ends
from .record import Verdict
from .spec import RESULT_FILE, WorkerSpec
from .starters import Direct, Ended, InShares, Started, Starter

__all__ = [
    "TICK_S", "Direct", "Group", "GroupOutcome", "InShares", "Member", "OnFailure", "Starter", "WorkerOutcome",
]  # fmt: skip

OnFailure = Literal["end", "continue"]

TICK_S = 0.1
_TERM_GRACE_S = 3.0
# Which of several processes this one is itself: not its workers' business.
_PLACE = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class WorkerOutcome:
    """The end of one worker.

    Attributes:
        verdict: outcome; `timeout` if its time was over.
        result: the result that it wrote, empty if it could not.
        held: facts of its share (:meth:`dnnsuite.pin.Outcome.to_dict`); empty outside shares.
    """

    verdict: Verdict
    result: Mapping[str, Any]
    seconds: float
    held: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class GroupOutcome:
    """The end of a group: `verdict` is that of the worker which failed first, or of the group's time."""

    verdict: Verdict
    workers: tuple[WorkerOutcome, ...] = ()
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """True if every worker ended well."""
        return self.verdict.ok

    @property
    def results(self) -> list[Mapping[str, Any]]:
        """The result of each worker."""
        return [worker.result for worker in self.workers]

    @classmethod
    def not_started(cls, failure: str, message: str, seconds: float = 0.0) -> GroupOutcome:
        """Make the outcome of a group of which no worker could be started."""
        return cls(Verdict.failed(failure, message), (), seconds)


@dataclass
class Member:
    """A worker that was started."""

    spec: WorkerSpec
    process: Started
    channel: socket.socket  # a byte from it: it is set up; a byte to it: all are; its end: it has ended
    began_s: float
    ready: bool = False
    seconds: float | None = None  # that it ran; None while it does


class Group:
    """Workers that are running, and the sockets shared with them."""

    def __init__(self, starter: Starter, on_failure: OnFailure) -> None:
        self._starter, self.on_failure = starter, on_failure
        self.members: list[Member] = []
        self._began_s = time.monotonic()
        self._first_failure: int | None = None
        self._late: set[int] = set()  # that still ran when time was over

    def start(self, index: int, spec: WorkerSpec, variables: Mapping[str, str]) -> int:
        command = _command(spec.processes, spec.write())
        environment = {name: value for name, value in os.environ.items() if name not in _PLACE}
        with ExitStack() as files:
            try:
                mine, its = socket.socketpair()
                files.enter_context(its)
                unused = files.enter_context(ExitStack())
                unused.callback(mine.close)
                out, err = (
                    files.enter_context(open(spec.folder / f"{name}.txt", "wb")) for name in ("stdout", "stderr")
                )
                process = self._starter.start(
                    index, command, {**environment, **variables}, (its.fileno(), out.fileno(), err.fileno())
                )
                unused.pop_all()
            except OSError as error:
                raise Error(f"cannot start a worker: {error}") from error
        worker_started(process.pid)
        self.members.append(Member(spec, process, mine, time.monotonic()))
        return process.pid

    def note_ends(self, alive: dict[int, Member]) -> bool:
        """Take the members that have ended out of `alive`; return True if one of them failed first of all."""
        failed = False
        for index, member in list(alive.items()):
            if (code := member.process.poll()) is None:
                continue
            del alive[index]
            member.seconds = time.monotonic() - member.began_s
            if code != 0:
                self._first_failure = index if self._first_failure is None else self._first_failure
                failed = True
        return failed

    def is_late(self, alive: Mapping[int, Member]) -> None:
        """Note that time was over while these still ran."""
        self._late = set(alive)

    def trim(self, shorten: Callable[[Path], None]) -> None:
        """Keep the beginning and the end of what workers write to their standard output and error."""
        for member in self.members:
            for name in ("stdout", "stderr"):
                shorten(member.spec.folder / f"{name}.txt")

    def end(self) -> list[Ended]:
        """Ask the workers that still run to end, then kill them with all their children."""
        for member in self.members:
            member.process.terminate()
        grace_until_s = time.monotonic() + _TERM_GRACE_S
        asked = self.members if isinstance(self._starter, Direct) else []
        while time.monotonic() < grace_until_s and any(member.process.poll() is None for member in asked):
            time.sleep(0.01)
        ended = []
        for member in self.members:
            ended.append(member.process.finish())
            member.seconds = member.seconds or time.monotonic() - member.began_s
            member.channel.close()
            worker_ended(member.process.pid)
        self.trim(keep_ends)
        return ended

    def judged(self, ended: Sequence[Ended], struck: bool) -> GroupOutcome:
        seconds = time.monotonic() - self._began_s
        workers = tuple(
            self._worker(index, member, end, struck)
            for index, (member, end) in enumerate(zip(self.members, ended, strict=True))
        )
        if self._first_failure is None and self._late and self.on_failure == "end":
            return GroupOutcome(_timeout(seconds), workers, seconds)
        failed = [index for index, worker in enumerate(workers) if not worker.verdict.ok]
        if not failed:
            return GroupOutcome(Verdict.good(), workers, seconds)
        first = self._first_failure if self._first_failure is not None else failed[0]
        verdict = workers[first].verdict
        who = f"replica {first}: " if len(workers) > 1 else ""
        return GroupOutcome(Verdict.failed(verdict.failure or "crash", who + verdict.message), workers, seconds)

    def _worker(self, index: int, member: Member, ended: Ended, struck: bool) -> WorkerOutcome:
        folder, seconds = member.spec.folder, member.seconds or 0.0
        stderr = read_tail(folder / "stderr.txt")
        if ended.returncode == DISK_EXIT:
            told = stderr.strip().splitlines()  # nothing, when even that found no room
            raise OutputError(told[-1] if told else f"cannot write {folder}: no space left")
        path = folder / RESULT_FILE
        result: dict[str, Any] = read_json(path) if path.is_file() else {}
        return WorkerOutcome(self._verdict(index, result, ended, stderr, seconds, struck), result, seconds, ended.held)

    def _verdict(
        self, index: int, result: Mapping[str, Any], ended: Ended, stderr: str, seconds: float, struck: bool
    ) -> Verdict:
        """Judge one worker: the cause of its process's end counts more than its own result."""
        if index in self._late:
            return _timeout(seconds)
        kill = ended.kernel_kill
        if kill is not None and kill.scope:  # its share has seen it
            return Verdict.failed(*kill.verdict())
        if result:
            return Verdict(result["status"], result["failure"], result["message"])
        return Verdict.failed(*classify_exit(ended.returncode, stderr, kill if struck else None))


def _timeout(seconds: float) -> Verdict:
    return Verdict.failed("timeout", f"not finished after {seconds:.0f} s")


def _command(processes: int, spec: Path) -> list[str]:
    """Command of a worker, or of torchrun with several processes."""
    worker = ["-m", "dnnsuite._runs.worker", str(spec)]
    if processes == 1:
        return [sys.executable, *worker]
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return [sys.executable, *torchrun, *worker]
