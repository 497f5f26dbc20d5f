# SPDX-License-Identifier: MIT
"""One division of an array's models into shards, each with its captured step.

It is replaced as a whole where modes, hooks, parameters or autocast have changed, so that no shard keeps what belonged
to another division; recordings that still fit are found again (`capture/library.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch

from .._C import Guards
from .._torch import caches_parametrizations, own_parametrizations
from .capture import Audit, CapturedStep, CudaGraphs, Recordings, Scripts, guards
from .capture.guards import GuardTable, guard_left_out
from .outside import OneCall, OutsideState
from .part import LossFunction, Vectors
from .shard import Shard

Autocast = tuple[str, bool, torch.dtype, bool]


def autocast_now(device: str = "cpu") -> Autocast:
    """Return the autocast of a type of device as the calling thread has it: device, enabled, dtype, cache enabled."""
    enabled, dtype, cache = (read() for read in readers_of_autocast(device))
    return device, enabled, dtype, cache


def readers_of_autocast(device: str) -> Sequence[Callable[[], Any]]:
    """List functions that read the autocast of a type of device: enabled, dtype, cache enabled."""
    enabled, dtype = torch.is_autocast_enabled, torch.get_autocast_dtype
    return partial(enabled, device), partial(dtype, device), torch.is_autocast_cache_enabled


def parts_of(models: int, width: int, rest: int = 0) -> Sequence[tuple[int, int]]:
    """List (start, length) of the shards of `width` models; with `rest` only the first is, and others have `rest`."""
    starts = range(width, models, rest) if rest else range(width, models, width)
    return [(0, min(width, models)), *((start, min(rest or width, models - start)) for start in starts)]


class Deal:
    """Shards into which an array's models are divided, and their captured steps.

    Args:
        shards: all models of the array, `width` to a shard but for the last.
        loss_function: loss function of the step, or a list of those of its parts.
        replays: maker of replays of recorded steps; None to run every step as written.
        flush: a context for each step.
        autocast: the autocast of the thread that asks for steps.
        recordings: those that shards may share; None if each records for itself.
        ahead: the first shard is recorded ahead of others of its width, and the rest of the models runs as written.
        trusted: steps of all models have shown that the code moves nothing that cannot be put back.

    Attributes:
        captured: the steps of shards that are captured, or may yet be.
        itself: the one shard is the array, without a copy of its modules.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        loss_function: LossFunction | tuple[LossFunction, ...],
        replays: Scripts | CudaGraphs | None,
        flush: Callable[[], AbstractContextManager[Any]],
        autocast: Autocast,
        recordings: Recordings | None = None,
        ahead: bool = False,
        trusted: bool = False,
    ) -> None:
        self.shards, self.ahead = shards, ahead
        self.itself = shards[0].array is shards[0].whole
        self._flush, self._autocast = flush, autocast
        self._seen: Any = None
        self._ran = self._took = False
        self.table = GuardTable()
        self._values: list[Any] | None = None
        self._reach = guards.reach_of(loss_function, shards[0].array, shards[0].whole)
        self.outside, self._layouts = OutsideState(self._reach.readers), set[Any]()
        self.captured = [
            CapturedStep(shard, replays, recordings, self._reach)
            for shard in (self.shards[:1] if ahead else self.shards)
            if replays is not None
        ]
        self.one_call = OneCall(self.captured, trusted) if len(shards) > 1 and self.captured else None

    @property
    def mode(self) -> str:
        """`captured`, `warming up`, or `eager: ` and the reason, of the shard that is furthest from a replay."""
        if len(self.captured) == 1 and not self.ahead:
            return self.captured[0].mode
        modes = {captured.mode for captured in self.captured}
        for start in ("eager", "warming up"):
            for mode in sorted(modes):
                if mode.startswith(start):
                    return mode
        return "warming up" if self.ahead else "captured"

    def ran_python(self) -> bool:
        """Return True if a step since the last call was no replay in every shard, or left tensors in attributes. None
        may be under way."""
        ran, self._ran = self._ran, False
        return ran

    def took_python(self) -> bool:
        """Return True if a step since the last call was more than operators: it may have changed Python values."""
        took, self._took = self._took, False
        return took

    @property
    def parted(self) -> bool:
        """True if models of one shard go different ways, by numbers that their code reads: recordings of shards of one
        are fewer."""
        each = zip(self.captured, self.shards, strict=False)
        return any(captured.parted and shard.length > 1 for captured, shard in each)

    def guard_code(self, guards: Guards) -> None:
        """Guard that no other function stands in the place of one that the steps call, and that layers leave out what
        they do."""
        guard_left_out(guards, self.shards[0].whole, [(one.start, one.length) for one in self.shards])
        if self.captured:
            self._reach.bindings.guard(guards)

    def look(self) -> None:
        """Read the values that the code sees outside of its arguments, for a step that is asked for now."""
        if self.captured and not self.table.hold():
            fresh = self.table.renewed(self._guard)
            self._values = [read() for read in self._reach.readers]
            self.table.keep(fresh)

    @property
    def outgrown(self) -> bool:
        """True if the values that the code sees have code in them that came after these shards were made."""
        return bool(self.captured) and self._reach.outgrown()

    def join(self, guards: Guards) -> bool:
        """Let `guards` guard these values; False in a pause."""
        return not self.captured or self.table.join(guards)

    def _guard(self, guards: Guards) -> None:
        for reader in self._reach.readers:
            reader.guard(guards)

    def replays(self, layout: Any) -> bool:
        """Return True if the last step was a replay in every shard, and so was one on a batch of this layout."""
        return self._replayed and layout in self._layouts

    def reads_live(self, seen: Any) -> bool:
        """Return True if a replay for the values `seen`, from `read`, may read them anew; then `note_done` is called
        after it."""
        before, self._seen = self._seen, seen
        live = before != seen or any(captured.reads_live for captured in self.captured)
        if live:
            self.outside.look()
        return live

    def note_done(self, layout: Any) -> None:
        """Note whether a step that has ended was replayed: the next on such a batch needs no Python then."""
        if len(self.shards) == 1:  # several write in no order
            self.outside.note_own()
        if self._replayed and layout is not None:
            self._layouts.add(layout)

    @property
    def quiet(self) -> bool:
        """True if the last step was a replay of operators alone in every shard."""
        return bool(self.captured) and not self.ahead and all(one.quiet for one in self.captured)

    @property
    def _replayed(self) -> bool:
        return bool(self.captured) and not self.ahead and all(one.replayed for one in self.captured)

    def read(self) -> list[Any] | None:
        """Return the values that the code sees outside of its arguments, as `look` has found them last."""
        if self._values is None:
            self.look()
        return self._values

    def run_alone(self, alone: bool) -> None:
        """Tell the shards that no other thread runs the code meanwhile."""
        for captured in self.captured:
            captured.alone = alone

    def audit_next(self, audits: bool) -> list[Audit]:
        """Let replays of the next step be audits, or not; return those of the last step."""
        self._took = True
        done = [captured.audit for captured in self.captured if captured.audit is not None]
        for captured in self.captured:
            captured.audits, captured.audit = audits, None
        return done

    def run(self, index: int, batch: tuple[Any, ...], asked: Any) -> torch.Tensor:
        """Run one step of `batch` on shard `index`; return its losses `[length]`.

        Args:
            asked: hyper-parameters and values, from `read`, of the moment at which the step was asked for; and the
                batch, flattened, if it is a tuple of tensors of all models.
        """
        vectors, seen, flat = asked
        shard = self.shards[index]
        flat = flat if shard.is_whole else None
        device, autocast, *_ = self._autocast
        flush = self._flush()
        if self.one_call is not None:
            self.one_call.begin(index)
        try:
            with flush:
                if not (autocast or torch.is_autocast_enabled(device) or caches_parametrizations()):
                    return self._run(shard, index, batch, vectors, seen, flat)
                # On a GPU torch's cache of cast weights is off: a graph would read weights cast in an earlier step.
                _, _, dtype, cache = self._autocast
                with torch.autocast(device, dtype, autocast, cache and device == "cpu"), own_parametrizations():
                    return self._run(shard, index, batch, vectors, seen, flat)
        except BaseException:
            flush.__exit__(None, None, None)  # an interrupt may come on the way in or out
            raise
        finally:
            if self.one_call is not None:
                self.one_call.end(index)

    def _run(
        self, shard: Shard, index: int, batch: tuple[Any, ...], vectors: Vectors, seen: list[Any] | None, flat: Any
    ) -> torch.Tensor:
        if index >= len(self.captured):
            self._ran = self._took = True
            return shard.step(batch, vectors)
        captured = self.captured[index]
        try:
            own = shard.part(batch) if flat is None else batch
            return captured(own, shard.hyper(vectors), seen, flat)
        finally:
            if not captured.quiet:
                self._took = True
                self._ran = self._ran or not captured.replayed or captured.leaves
