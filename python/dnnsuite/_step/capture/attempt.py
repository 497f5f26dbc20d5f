# SPDX-License-Identifier: MIT
"""Progress of the capture of one layout of batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from .followed_step import FollowedStep
from .library import Facts, Proven
from .looks import NO_LOOKS, Looks, Outcomes, Replay
from .paths import Paths
from .placed import Read
from .recording import StepRecording


@dataclass(eq=False)
class NumberedReplay:
    """Replay that takes numbers, and the step it was recorded from."""

    step: FollowedStep
    replay: Replay
    read: list[Read]


@dataclass
class Attempt:
    """Progress of the capture for one layout of batch; `stage` says how its next step is used."""

    stage: str = (
        "begin"  # then "wait" for another shard, "warm up", "record", "follow", "compare", "replay", "paths"
    )
    facts: Facts = ()  # empty where no other shard has an interest
    warm: bool = False  # a step was made: state that is made late is there
    first: bool = False  # the recorded step was the first: it may have made state that is there later
    recording: StepRecording | None = None
    replay: Replay | None = None
    made: Proven | None = None  # the recording, in terms that serve other shards
    values: Any = None  # Python values of the modules before the recording
    ways: Any = None  # in which the modules' code ran while recorded
    read: list[Read] = field(default_factory=list)
    looks: Looks = NO_LOOKS  # values that Python has read beside
    numbered: list[NumberedReplay] = field(default_factory=list)  # for numbers that lead other ways
    pending: list[NumberedReplay] = field(default_factory=list)  # of these, not compared yet
    paths: Paths = field(default_factory=Paths)  # recordings, one for each way that Python takes in a step
    home: Attempt | None = None  # whose path this is

    def replays(self) -> list[Replay]:
        """List the replays at hand, one of which may be right for a step."""
        ready = [self.replay, *(one.replay for one in self.numbered), *(one.replay for one in self.paths)]
        return [one for one in ready if one is not None]

    def file(self) -> None:
        """Become a path, if the recorded step decides its way by what it reads: others may be recorded beside it."""
        if not self.looks.on_the_way or self.stage not in ("compare", "replay"):
            return
        if self.home is not None:
            self.home.paths.add(self)
            return
        self.paths.add(replace(self, paths=Paths(), home=self))
        self.stage, self.recording, self.replay, self.made = "paths", None, None, None


class Attempts:
    """Progress of the capture for the current Python values: an attempt for each layout of batch, or one for each
    outcome where Python reads values of the batch."""

    def __init__(self) -> None:
        self.by_key: dict[Any, Attempt] = {}
        self.outcomes = Outcomes()

    def drop(self, attempt: Attempt) -> None:
        """Forget an attempt."""
        for key in [key for key, other in self.by_key.items() if other is attempt]:
            del self.by_key[key]

    def add_outcome(
        self, attempt: Attempt, key: Any, chosen: int | None, guard: Replay, looks: Looks
    ) -> None:
        """Restrict an attempt for the layout `key` to batches of which Python reads the values `looks`: `guard` tells
        whether it does. The attempt was made after the outcome `chosen`."""
        self.drop(attempt)
        number = self.outcomes.add(key, chosen, guard, looks, attempt.facts)
        self.by_key[key, number] = attempt


def find_numbered(
    replays: Sequence[NumberedReplay], numbers: Sequence[Any], inputs: Sequence[torch.Tensor]
) -> tuple[NumberedReplay, list[Any]] | None:
    """Find the replay for these numbers, and the values of its arithmetic; None without one."""
    for one in replays:
        values = one.step.values(numbers)
        if values is not None and all(read.holds(inputs) for read in one.read):
            return one, values
    return None
