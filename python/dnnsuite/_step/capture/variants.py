# SPDX-License-Identifier: MIT
"""Steps in which Python compares numbers that it reads of tensors, as loops do that end at a tolerance.

Each way that the comparisons lead has a recording. It is replayed with the comparisons as assertions; where one fails
the next recording is tried, the one of the last step first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .attempt import Attempt
from .comparison import reads_of
from .followed_step import FollowingRecorder, StateOutOfSight
from .hidden_reads import HiddenReads
from .kept_python import CannotBeKept, KeptPython
from .library import Read
from .looks import Replay, ValueChanged, holds
from .read_numbers import PlainRead, StandIns
from .record import StepRecording
from .script import NotScriptable, same_bits
from .value_readers import Reader
from .watch import StepInputs, StepWatch, refuse_writes_under_reads

MAX_VARIANTS = 16  # recordings of one layout of batch


@dataclass(eq=False)
class Variant:
    """One way that the comparisons lead; `proven` once a replay has left the bits of the step as written."""

    replay: Replay
    reads: list[Read]
    proven: bool = False


class Variants:
    """Recordings of the ways that a step takes.

    Args:
        readers: read what the code sees, which a step that does not count must not change.
    """

    def __init__(self, watch: StepWatch, readers: Sequence[Reader]) -> None:
        self._watch, self._readers = watch, readers
        self._known: list[Variant] = []
        self._misses = 0  # steps that were none of them; the others count against them

    def replay(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor | None:
        """Replay a step; None if no proven recording is for it, and nothing was changed."""
        for place, variant in enumerate(self._known):
            losses = _tried(variant, inputs) if variant.proven else None
            if losses is not None:
                if place:
                    self._known.insert(0, self._known.pop(place))
                self._misses = max(0, self._misses - 1)
                return losses
        return None

    def go_on(
        self, attempt: Attempt, recording: StepRecording, given: StepInputs
    ) -> tuple[torch.Tensor, str | None]:
        """Take a step on the way to a replay: compare a recording with it if one is for it, else record its way.

        Args:
            recording: one of the step as written.

        Returns its losses, and why such steps cannot be replayed.
        """
        self._misses += 1
        if self._misses > 2 * MAX_VARIANTS:
            return self._watch.run(given), "the ways that comparisons of tensors' values lead keep changing"
        found = self._compared(attempt, recording, given)
        if found is None and len(self._known) < MAX_VARIANTS:
            found = self._recorded(attempt, recording, given)
        return found or (self._watch.run(given), None)

    def _compared(
        self, attempt: Attempt, recording: StepRecording, given: StepInputs
    ) -> tuple[torch.Tensor, str | None] | None:
        if all(variant.proven for variant in self._known):
            return None
        state = self._watch.state_of(recording)
        for variant in self._known:
            replayed = None if variant.proven else _tried(variant, given.tensors)
            if replayed is None:
                continue
            state.exchange()
            attempt.values = self._watch.python_values()
            losses = self._watch.run(given)
            why = self._watch.side_effect(attempt)
            both = zip([replayed, *state.values], [losses, *state.tensors], strict=True)
            if not all(same_bits(a, b.detach()) for a, b in both):
                why = "a replay gives other bits than the step as written"
            variant.proven = why is None
            return losses, why
        return None

    def _recorded(
        self, attempt: Attempt, recording: StepRecording, given: StepInputs
    ) -> tuple[torch.Tensor, str | None]:
        """Run the step once with stand-ins for what it reads, which does not count, and once as written."""
        watch = self._watch
        try:
            python = KeptPython(watch.array, self._readers)
        except CannotBeKept as error:
            return watch.run(given), str(error)
        state, why = watch.state_of(recording), None
        recorder = FollowingRecorder(given.tensors, given.fixed, False, state.storages())
        try:
            with recorder, HiddenReads(recorder.recording), StandIns(recorder):
                losses = watch.run(given)
            recorder.recording.losses = recorder.slot(losses).index
            why = recorder.recording.refusal
        except (PlainRead, StateOutOfSight, Exception):
            why = recording.refusal
        finally:
            state.put_back()
            python.put_back()
        attempt.values = watch.python_values()
        losses = watch.run(given)
        if why is None and watch.side_effect(attempt) is not None:
            why = recording.refusal  # what was read is kept
        why = why or self._prepared(recorder.recording, given)
        return losses, why

    def _prepared(self, recording: StepRecording, given: StepInputs) -> str | None:
        """Make the replay of a recording; explain why if there is none."""
        watch = self._watch
        refuse_writes_under_reads(recording, len(given.tensors) - given.fixed)
        if recording.refusal is not None:
            return recording.refusal
        try:
            made = watch.replays.prepare(watch.train, recording, given.batch, given.hyper, given.tensors)
        except NotScriptable as error:
            return str(error)
        self._known.insert(0, Variant(made, reads_of(recording, given.tensors)))
        return None


def _tried(variant: Variant, inputs: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Replay a step; None if it is not for these inputs, and nothing was changed."""
    guard = variant.replay.guard
    if not all(read.holds(inputs) for read in variant.reads) or (
        guard is not None and not holds(guard, inputs)
    ):
        return None
    try:
        return variant.replay(inputs)
    except ValueChanged:
        return None
