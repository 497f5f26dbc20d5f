# SPDX-License-Identifier: MIT
"""Shards of an array, each with its captured step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from .._fuse import loops, run_in_a_loop
from .._torch import caches_parametrizations, own_parametrizations
from .capture import Audit, CapturedStep, CudaGraphs, Recordings, Scripts, guards
from .outside import OutsideState, writes_outside
from .part import LossFunction, StepPart
from .shard import Shard, Vectors

Autocast = tuple[str, bool, torch.dtype, bool]

#: Names in code that differentiates forward: torch counts the levels of this in one place for all threads.
_FORWARD_MODE = frozenset(
    ("jvp", "jacfwd", "hessian", "linearize", "forward_ad", "dual_level", "make_dual", "enter_dual_level")
)


def autocast_now(device: str = "cpu") -> Autocast:
    """Return the autocast of a type of device as the calling thread has it: device, enabled, dtype, cache enabled."""
    enabled, dtype = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    return device, enabled, dtype, torch.is_autocast_cache_enabled()


def _under(autocast: Autocast) -> AbstractContextManager[Any]:
    """Context manager: set that autocast in a thread that has none.

    On a GPU torch's cache of cast weights is off: a graph would read weights cast in an earlier step.
    """
    device, enabled, dtype, cache = autocast
    if not enabled and not torch.is_autocast_enabled(device):
        return contextlib.nullcontext()
    return torch.autocast(device, dtype, enabled, cache and device == "cpu")


def parts_of(models: int, width: int, rest: int = 0) -> Sequence[tuple[int, int]]:
    """List (start, length) of the shards of `width` models; with `rest` only the first is, and others have `rest`."""
    starts = range(width, models, rest) if rest else range(width, models, width)
    return [(0, min(width, models)), *((start, min(rest or width, models - start)) for start in starts)]


def shards_of(
    array: torch.nn.Module, parts: Sequence[StepPart], places: Sequence[tuple[int, int]], loop: bool
) -> list[Shard]:
    """Make the shards at these places (start, length), whose models run in a `loop` or all at once."""
    shards = [Shard(array, parts, start, length) for start, length in places]
    for shard in shards:
        run_in_a_loop(shard.array, loop)
    return shards


def _layout(batch: Any) -> Any:
    return guards.flatten(batch)[1]


class Deal:
    """Shards into which an array's models are divided, and their captured steps.

    Args:
        shards: all models of the array, `width` to a shard but for the last.
        loss_function: loss function of the step, or a list of those of its parts.
        replays: maker of replays of recorded steps; None to run every step as written.
        flush: a context for each step.
        autocast: the autocast of the thread that asks for steps.
        known: recordings that shards may share; None if each records for itself.
        ahead: the first shard is recorded ahead of others of its width, and the rest of the models runs as written.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        loss_function: LossFunction | tuple[LossFunction, ...],
        replays: Scripts | CudaGraphs | None,
        flush: Callable[[], AbstractContextManager[Any]],
        autocast: Autocast,
        known: Recordings | None = None,
        ahead: bool = False,
    ) -> None:
        self.shards, self.ahead = shards, ahead
        self._flush, self._autocast = flush, autocast
        self._seen: Any = None
        self._ran = False
        self._reach = guards.reach_of(loss_function, shards[0].array, shards[0].whole)
        self.outside, self._layouts = OutsideState(self._reach.readers), set[Any]()
        names = self._reach.names
        # `parametrize.cached` has one cache for all threads.
        cached = "cached" in names and any(hasattr(m, "parametrizations") for m in shards[0].array.modules())
        self._takes_turns = cached or not _FORWARD_MODE.isdisjoint(names)
        self._writes_outside = writes_outside(self._reach.functions.values())
        self._captured = [
            CapturedStep(shard.train, shard.array, loss_function, shard.state, replays, shard, known, self._reach)
            for shard in (self.shards[:1] if ahead else self.shards)
            if replays is not None
        ]

    @property
    def mode(self) -> str:
        """`captured`, `warming up`, or `eager: ` and the reason, of the shard that is furthest from a replay."""
        if len(self._captured) == 1 and not self.ahead:
            return self._captured[0].mode
        modes = {captured.mode for captured in self._captured}
        for start in ("eager", "warming up"):
            for mode in sorted(modes):
                if mode.startswith(start):
                    return mode
        return "warming up" if self.ahead else "captured"

    @property
    def scouted(self) -> bool:
        """True once it is known whether the first shard, recorded ahead, can be replayed."""
        return self.ahead and all(one.replayed or one.refusal is not None for one in self._captured)

    @property
    def loops(self) -> bool:
        """True if the models of every shard have run in a loop."""
        return all(loops(shard.array) for shard in self.shards)

    @property
    def takes_turns(self) -> bool:
        """True if the shards must not run side by side."""
        writes = self._writes_outside and not self._replayed  # a replay writes nothing
        return self._takes_turns or writes or caches_parametrizations()

    def ran_python(self) -> bool:
        """Return True if a step since the last call was no replay in every shard, or left tensors in attributes. None
        may be under way."""
        ran, self._ran = self._ran, False
        return ran

    @property
    def parted(self) -> bool:
        """True if models of one shard go different ways, by numbers that their code reads: recordings of shards of one
        are fewer."""
        pairs = zip(self._captured, self.shards, strict=False)
        return any(captured.parted and shard.length > 1 for captured, shard in pairs)

    def code_changed(self) -> bool:
        """Return True if another function stands in the place of one that the steps call."""
        return bool(self._captured) and self._reach.bindings.changed()

    def reads_live(self, seen: Any, batch: Any) -> bool:
        """Return True if a step with the values `seen`, from `read`, may read them anew while it runs; then
        `note_done` is called after it."""
        before, self._seen = self._seen, seen
        if self.ahead or before != seen or any(captured.reads_live for captured in self._captured):
            self.outside.look()
            return True
        return self.outside.any and not (self._replayed and _layout(batch) in self._layouts)

    def note_done(self, batch: Any) -> None:
        """Note whether a step that has ended was replayed: the next on such a batch reads nothing anew then."""
        layout = _layout(batch)
        if len(self.shards) == 1:  # several write in no order
            self.outside.note_own()
        if self._replayed and layout is not None:
            self._layouts.add(layout)

    @property
    def _replayed(self) -> bool:
        return bool(self._captured) and not self.ahead and all(one.replayed for one in self._captured)

    @property
    def follows(self) -> bool:
        """True if a shard may put stand-ins in the place of Python's numbers in the next step."""
        return any(captured.follows for captured in self._captured)

    def read(self) -> list[Any] | None:
        """Read the values that the code sees outside of its arguments, for a step that is asked for now."""
        return self._captured[0].read() if self._captured else None

    def read_outside(self) -> list[Any]:
        """Read the values outside of the array that the code sees."""
        return [read() for read in self._reach.readers]

    def run_alone(self, alone: bool) -> None:
        """Tell the shards that no other thread runs the code meanwhile."""
        for captured in self._captured:
            captured.alone = alone

    def audit_next(self, audits: bool) -> list[Audit]:
        """Let replays of the next step be audits, or not; return those of the last step."""
        done = [captured.audit for captured in self._captured if captured.audit is not None]
        for captured in self._captured:
            captured.audits, captured.audit = audits, None
        return done

    def python_changed(self, names: Sequence[str], state: Any) -> None:
        """Use the replays for the Python values that the shards' modules have now."""
        for captured in self._captured:
            captured.python_changed(names, state)

    def run_asked(self, index: int, batch: tuple[Any, ...], asked: tuple[Vectors, Any]) -> torch.Tensor:
        """Run a step with the hyper-parameters and Python values of the moment at which it was asked for."""
        return self.run(index, batch, *asked)

    def run(self, index: int, batch: tuple[Any, ...], vectors: Vectors, seen: list[Any] | None = None) -> torch.Tensor:
        """Run one step of `batch` on shard `index`; return its losses `[length]`. `seen` is a result of `read`."""
        shard = self.shards[index]
        with self._flush(), _under(self._autocast), own_parametrizations():
            if index >= len(self._captured):
                self._ran = True
                return shard.step(batch, vectors)
            captured = self._captured[index]
            try:
                return captured(shard.part(batch), shard.hyper(vectors), seen)
            finally:
                if not captured.replayed or captured.leaves:
                    self._ran = True
