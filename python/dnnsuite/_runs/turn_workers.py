# SPDX-License-Identifier: MIT
"""Workers that are started together and take turns: one way trains, the others wait without using a CPU; or that all
train together (:func:`run_group`).

Each way is a group of workers (B processes, or one with an array). An order goes to all workers of a way at once, and
the turn is over when all have answered. A way of which a worker fails is ended; the others go on.
"""

from __future__ import annotations

import json
import selectors
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from .. import host
from .group import TICK_S, Group, GroupOutcome, Member, OnFailure, Starter
from .interrupts import check, deferred
from .limits import free_middle
from .spec import WorkerSpec

Key = TypeVar("Key", bound=Hashable)
Answers = list[dict[str, Any]]

_MOST_BYTES = 1 << 16  # of one read from a worker


@dataclass
class _Way:
    """The workers of one way.

    Attributes:
        alive: workers that have not ended, by their number.
        answers: answer of each to the order under way.
        unread: beginning of an answer whose end has not come.
    """

    group: Group
    alive: dict[int, Member]
    answers: dict[int, dict[str, Any]] = field(default_factory=dict)
    unread: dict[int, bytes] = field(default_factory=dict)
    outcome: GroupOutcome | None = None
    begun: bool = False

    @property
    def ready(self) -> bool:
        return all(member.ready for member in self.alive.values())


class TurnWorkers(Generic[Key]):
    """Context manager: the workers of several ways; those that still run at its end are ended.

    Args:
        timeout_s: seconds that a way's set-up, and each of its turns, may take.
        tick: called about ten times a second while waiting.
        started: called with the id of each worker's process.
    """

    def __init__(
        self,
        timeout_s: float,
        tick: Callable[[], None] = lambda: None,
        started: Callable[[int], None] = lambda pid: None,
    ) -> None:
        self._timeout_s, self._tick, self._started = timeout_s, tick, started
        self._ways: dict[Key, _Way] = {}
        self._kills_before = host.oom_kills()

    def __enter__(self) -> TurnWorkers[Key]:
        return self

    def __exit__(self, *exc: object) -> None:
        with deferred():
            for way in self._ways.values():
                if way.outcome is None:
                    way.group.end()

    def start(
        self,
        key: Key,
        specs: Sequence[WorkerSpec],
        variables: Sequence[Mapping[str, str]],
        starter: Starter,
        on_failure: OnFailure = "end",
    ) -> None:
        """Start the workers of a way, which set themselves up; do not wait for them.

        Raises:
            Error: a worker cannot be started.
        """
        group = Group(starter, on_failure)
        self._ways[key] = way = _Way(group, {})
        for index, (spec, own) in enumerate(zip(specs, variables, strict=True)):
            with deferred():
                self._started(group.start(index, spec, own))
            way.alive = dict(enumerate(group.members))

    def running(self) -> list[Key]:
        """Return the ways whose workers all run."""
        return [key for key, way in self._ways.items() if way.outcome is None]

    def set_up(self) -> list[Key]:
        """Wait until every way that was started is set up, or has failed; return those that are set up."""
        self._until(self.running(), lambda way: way.ready)
        return self.running()

    def dismiss(self, keys: Sequence[Key]) -> None:
        """End the workers of ways that have no turn after all; nothing is told of them."""
        for key in keys:
            with deferred():
                self._ways.pop(key).group.end()

    def turn(self, key: Key, order: Mapping[str, Any]) -> Answers | None:
        """Give an order to all workers of a way; return their answers, None if it failed."""
        way = self._ways[key]
        if way.outcome is not None:
            return None
        way.answers.clear()
        self._send(way, json.dumps(order).encode() + b"\n")
        self._until([key], lambda way: way.answers.keys() >= way.alive.keys())
        if way.outcome is None and len(way.answers) < len(way.group.members):
            self._conclude(way)  # one ended without an answer
        return None if way.outcome else [way.answers[index] for index in sorted(way.answers)]

    def end(self, last: Mapping[Key, Mapping[str, Any]]) -> dict[Key, GroupOutcome]:
        """Give each way its last order, let all end, and return what became of every way that was started."""
        for key in self.running():
            self.turn(key, last[key])
        for key in self.running():
            self._send(self._ways[key], b"{}\n")
        self._until(self.running(), lambda way: not way.alive)
        return self._outcomes()

    def together(self) -> dict[Key, GroupOutcome]:
        """Let the workers of each way, once they are set up, begin together; return what became of each way."""

        def over(way: _Way) -> bool:
            if not way.begun and way.alive and way.ready:
                way.begun = True
                self._send(way, b"g")
            return not way.alive

        self._until(self.running(), over)
        return self._outcomes()

    def _outcomes(self) -> dict[Key, GroupOutcome]:
        for way in self._ways.values():
            if way.outcome is None:
                self._conclude(way)
        return {key: way.outcome for key, way in self._ways.items() if way.outcome is not None}

    def _send(self, way: _Way, line: bytes) -> None:
        for member in way.alive.values():
            with suppress(OSError):  # it has ended meanwhile, which is seen when it is waited for
                member.channel.sendall(line)

    def _until(self, keys: Sequence[Key], over: Callable[[_Way], bool]) -> None:
        """Wait until `over` holds for each way; one that fails, or is late, is ended."""
        ways = [self._ways[key] for key in keys]
        deadline_s = time.monotonic() + self._timeout_s
        with selectors.DefaultSelector() as selector:
            for way in ways:
                for index, member in way.alive.items():
                    selector.register(member.channel, selectors.EVENT_READ, (way, index))
            look_at_s = time.monotonic()
            while ways := [way for way in ways if way.outcome is None and not over(way)]:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    for way in ways:
                        way.group.is_late(way.alive)
                        self._conclude(way)
                    return
                closed = [key for key, _ in selector.select(min(left_s, TICK_S)) if not _hear(*key.data)]
                for key in closed:
                    selector.unregister(key.fileobj)
                check()
                if not closed and time.monotonic() < look_at_s:  # nothing is done meanwhile but to wait for a turn
                    continue
                look_at_s = time.monotonic() + TICK_S
                for way in ways:
                    if way.group.note_ends(way.alive) and way.group.on_failure == "end":
                        self._conclude(way)
                    way.group.trim(free_middle)
                self._tick()

    def _conclude(self, way: _Way) -> None:
        with deferred():
            ended = way.group.end()
        way.alive.clear()
        way.outcome = way.group.judged(ended, host.oom_kills() > self._kills_before)


def _hear(way: _Way, index: int) -> bool:
    """Take in what a worker said; False at the end of its channel."""
    member = way.alive.get(index)
    if member is None:
        return False
    try:
        said = member.channel.recv(_MOST_BYTES)
    except OSError:  # it was killed
        said = b""
    if said and not member.ready:
        member.ready, said = True, said[1:]
        return True
    *lines, rest = (way.unread.pop(index, b"") + said).split(b"\n")
    if lines:
        way.answers[index] = json.loads(lines[-1])
    if rest:
        way.unread[index] = rest
    return bool(said or lines)


def run_group(
    specs: Sequence[WorkerSpec],
    variables: Sequence[Mapping[str, str]],
    timeout_s: float,
    starter: Starter,
    on_failure: OnFailure = "end",
    tick: Callable[[], None] = lambda: None,
    started: Callable[[int], None] = lambda pid: None,
) -> GroupOutcome:
    """Run one worker per spec, all together.

    Args:
        variables: added to this process's environment, per worker.
        timeout_s: wall-clock limit of the group; what runs then is ended with everything that it started.
        starter: :class:`Direct`, or :class:`InShares` of a partition.
        on_failure: `end`: the first worker that fails ends the others; `continue`: it leaves them alone.
        tick: called about ten times a second while waiting.
        started: called with the id of each worker's process.

    Raises:
        OutputError: a worker, or this process, cannot write into its directory.
        Error: a worker cannot be started; the others are ended.
    """
    with TurnWorkers[int](timeout_s, tick, started) as workers:
        workers.start(0, specs, variables, starter, on_failure)
        return workers.together()[0]
