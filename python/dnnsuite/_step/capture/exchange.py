# SPDX-License-Identifier: MIT
"""`Attempt` and `Way`: how far the capture of one layout of batch has come, and the recording of one path through it.

`Exchange` takes over recordings of other shards for an attempt, and offers its own, so that one shard records for all
that are alike, and the others wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from ..capture import guards
from .cuda import Replay
from .library import Facts, Proven, Read, Recordings, prove
from .looks import NO_LOOKS, Looks, Paths
from .numbers import ChangingNumbers, FollowedStep
from .plan import StepRecording
from .reach import Reach

if TYPE_CHECKING:
    from ..shard import Shard


class Exchange:
    """Recordings that one shard takes over from others, and offers to them.

    Args:
        subject: the shard.
        recordings: those of all shards; None if each keeps its own.
        reach: values and objects that the code can see.
        numbers: those that change between steps.
    """

    def __init__(self, subject: Shard, recordings: Recordings | None, reach: Reach, numbers: ChangingNumbers) -> None:
        self._subject, self._recordings, self._numbers = subject, recordings, numbers
        self._readers, self._code = tuple(reach.readers), reach.code
        self._modules = [type(module) for _, module in guards.modules_of(subject.array)]
        self._facts: Facts = ()
        self.leaves = False  # a step leaves tensors in attributes of modules
        if recordings is not None:
            code, places = recordings.numbers
            numbers.go_on_with(places if code == (self._code, self._modules) else ())

    def note_numbers(self) -> None:
        """Remember which numbers change, for shards that are made after an edit."""
        if self._recordings is not None and (self._numbers.places or self._numbers.why is not None):
            self._recordings.numbers = (self._code, self._modules), tuple(self._numbers.places)

    def forget_facts(self) -> None:
        """Read the facts of the shard anew: it has changed."""
        self._facts = ()

    def look_around(self, attempt: Attempt, key: Any, values: Sequence[Any], first: str) -> None:
        """Take over the recordings of another shard if there are any, or wait for the shard that makes one.

        Args:
            key: layout of the batch.
            values: those that the readers have read for this step.
            first: stage of a step that nobody has recorded.
        """
        recordings, subject = self._recordings, self._subject
        if recordings is None or self._numbers.deep or guards.hook(subject.array) is not None:
            attempt.stage = first
            return
        if not attempt.facts:
            self._facts = self._facts or self._facts_of(recordings.era)
            seen = repr(self._numbers.rest_seen(values))  # 1 is not 1.0
            attempt.facts = *self._facts, key, seen, _torch_state(), tuple(self._numbers.places)
        found = recordings.find(attempt.facts) or recordings.adopt(attempt.facts, self._objects())
        if self._take_over(found, attempt):
            return
        if not found and not recordings.lead(attempt.facts, self):
            attempt.stage = "wait"
            return
        pattern = recordings.pattern(attempt.facts)
        attempt.stage = "record"
        if pattern is not None:
            subject.prepare(pattern.plans)

    def _facts_of(self, era: object) -> Facts:
        """List what the step depends on beside values; code first, for other layouts have the same."""
        code, *layouts = self._subject.facts(era, {(path[0], key) for path, key in self._numbers.held_keys})
        return (era if self._code is None else self._code, code), *layouts

    def _objects(self) -> list[Any]:
        """List the objects that the code sees by their identity."""
        return [one for reader in self._readers for one in reader.walk().objects]

    def take_since(self, attempt: Attempt) -> bool:
        """Take over recordings that other shards have made meanwhile, of other paths of `attempt`; return True if there
        are."""
        if self._recordings is None or not attempt.facts:
            return False
        return self._take_over(self._recordings.find(attempt.facts), attempt)

    def _take_over(self, found: Sequence[Proven], attempt: Attempt) -> bool:
        """Replay recordings of the step of `attempt` from now on: its only one, or one for each way that it takes;
        return True if there is a new one."""
        taken = False
        for made in found:
            if attempt.paths.full or attempt.paths.has(made.looks, made.numbers):
                continue  # it is at hand, or none like it is wanted
            served = made.serve(self._subject)
            if served is None:
                continue
            taken, (replay, read) = True, served
            self.leaves = replay.leaves_in(self._subject.array) or self.leaves
            way = Way(attempt.facts, "replay", replay=replay, read=read, looks=made.looks, step=made.numbers)
            attempt.paths.add(way)
            attempt.stage = "ways"
        return taken

    def follows(self, way: Way) -> bool:
        """Return True if the recording is a known list of operators, which needs no comparison; it is offered then."""
        made = self._proven(way)
        if made is None or self._recordings is None or not self._recordings.follows(made):
            return False
        self._offer(way, made)
        way.recording = None
        return True

    def keep(self, way: Way) -> None:
        """Offer a recording that was compared to other shards."""
        self._offer(way, self._proven(way))

    def _proven(self, way: Way) -> Proven | None:
        """Describe the replay of a way for other shards; None if it cannot serve them."""
        if not way.facts or way.replay is None:
            return None
        return prove(way.facts, self._subject, way.replay, way.read, way.looks, way.step)

    def _offer(self, way: Way, made: Proven | None) -> None:
        if self._recordings is not None and made is not None:
            # What the first step has set is there for the next.
            now = self._facts_of(self._recordings.era)
            self._recordings.keep(made, self._objects(), (*now, *way.facts[len(now) :]))
        self.give_up(way, alone=made is None or not made.settled)

    def give_up(self, attempt: Attempt | Way, alone: bool = True) -> None:
        """Let other shards try the step of `attempt`; with `alone` each for itself."""
        if self._recordings is not None and attempt.facts:
            self._recordings.give_up(attempt.facts, self, alone)


def _torch_state() -> tuple[Any, ...]:
    """List the settings of torch that decide which operators a step calls."""
    return (
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_grad_enabled(),
    )


@dataclass(eq=False)
class Attempt:
    """Progress of the capture for one layout of batch; `stage` says how its next step is used."""

    stage: str = "begin"  # then "wait" for another shard, "warm up", "record", "ways"
    facts: Facts = ()  # empty where no other shard has an interest
    recording: StepRecording | None = None  # of a step as written, where numbers change
    values: Any = None  # Python values of the modules after that
    ways: Any = None  # in which the modules' code ran in it
    paths: Paths = field(default_factory=Paths)  # a recording for each way that Python takes in a step


@dataclass(eq=False)
class Way:
    """Recording of one way through a step, and its replay, in use from the comparison of both with the step on."""

    facts: Facts
    stage: str = "compare"  # then "replay", or "record" again
    values: Any = None  # Python values of the modules before the recording
    ways: Any = None  # in which the modules' code ran while recorded
    first: bool = False  # the recorded step was the first: it may have made state that is there later
    recording: StepRecording | None = None
    replay: Replay | None = None
    read: list[Read] = field(default_factory=list)
    looks: Looks = NO_LOOKS  # values that Python has read beside
    step: FollowedStep | None = None  # where numbers are inputs
    numbers: list[Any] = field(default_factory=list)  # of that, for the step under way

    def takes(self, begin: Sequence[Any]) -> bool:
        """Return True if these numbers lead this way; a step begins with them."""
        values = [] if self.step is None else self.step.values(begin)
        self.numbers = values or []
        return values is not None

    def begins(self, inputs: Sequence[torch.Tensor]) -> bool:
        """Return True if it is right for all that is known of a step before it."""
        return all(read.holds(inputs) for read in self.read)

    def fed(self) -> list[Any]:
        """List the numbers that the replay takes beside the tensors."""
        return [] if self.step is None else self.step.inputs(self.numbers)

    def settle(self, numbers: ChangingNumbers) -> None:
        """Leave the numbers in the modules that the step as written would."""
        if self.step is not None:
            self.step.update(numbers, self.numbers)
