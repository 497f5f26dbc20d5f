# SPDX-License-Identifier: MIT
"""Audit of a replay: the step is run both ways from one state, and is taken only if both leave the same bits.

Guards compare what this package knows that Python reads. What no guard can see, such as the state of a C library, would
go on unnoticed: an audit finds its effect. All that a step changes is copied before, so that no shard has taken a step
that fails its audit.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from ..._fuse import is_in_a_model_apart
from ...errors import InvalidArgument, StaleRecording
from ..capture import guards
from .comparison import CannotBeKept, KeptPython, State
from .cuda import CudaRepeat
from .guards import put_back, tensors_left
from .python_state import python_values
from .script import described
from .watched_step import StepWatch

_LOOKED_INTO = (torch.Tensor, torch.nn.Module, type, types.ModuleType, types.FunctionType, types.MethodType)
_SHOWN = 3  # values that a message names


class Audit:
    """One step of one shard, replayed and eager.

    Args:
        watch: watch of the shard's steps.
        named: tensors that a step changes, by name.
        start: number of the shard's first model.
        replays: replays one of which may be right for the step.
    """

    def __init__(self, watch: StepWatch, named: Mapping[str, torch.Tensor], start: int, replays: Sequence[Any]) -> None:
        self.compared = False
        self._watch, self._start, self._numbers = watch, start, watch.numbers
        self._names = {id(tensor): name for name, tensor in named.items()}
        tensors = [*(t for one in replays for t in one.written()), *named.values()]
        self._state = State(tensors, watch.replays.home_of_copies(tensors, audits=True))
        self._repeat, self._ways = watch.replays.repeat(self._state), guards.ways(watch.array)
        self._before = self._numbers.now()
        self._left = tensors_left(watch.array)
        self._python: KeptPython | None = None
        with contextlib.suppress(CannotBeKept):  # the tensors, and numbers of a recording, are put back
            self._python = KeptPython(watch.array, self._numbers.readers)

    @property
    def keeps_python(self) -> bool:
        """True if Python values that the code can reach are put back, too."""
        return self._python is not None

    def compare(self, losses: torch.Tensor, step: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Run the eager `step` from the state before the replay, which has given `losses`; return its losses.

        Raises:
            StaleRecording: if it does something else; `undo` then takes back what it has changed.
        """
        array, state = self._watch.array, self._state
        try:
            replayed, after = [losses, *map(state.copied, state.tensors)], python_values(array)
        except torch.OutOfMemoryError:
            return losses  # the replay is the step, not compared
        left, eager = tensors_left(array), None
        self.undo()
        self._repeat.same_draws()
        try:
            with self._watch.replays.recording():
                eager = step()
        except torch.OutOfMemoryError:
            if not isinstance(self._repeat, CudaRepeat):
                raise
            self.undo()
            self._repeat.redo(replayed[1:])
            put_back(array, left)
        except Exception as error:
            raise _stale(f"the eager step fails with {described(error)}") from error
        if eager is None:  # it does not fit beside the graph
            return losses
        if guards.ways(array) != self._ways:  # a part runs one by one since then, and rounds differently
            return eager
        results = [eager, *state.tensors]
        why = None
        try:
            if not self._repeat.agrees(replayed, results, step):
                why = self._first_difference(replayed, results)
        except torch.OutOfMemoryError:
            return eager
        why = why or _other_value(after, python_values(array))
        if why is not None:
            raise _stale(f"{why}{self._unseen()}")
        self.compared = True
        return eager

    def undo(self) -> None:
        """Give tensors and Python values what they had before the step."""
        self._state.put_back()
        put_back(self._watch.array, self._left)
        if self._python is not None:
            self._python.put_back()
            return
        for place, value in zip(self._numbers.places, self._before, strict=True):
            self._numbers.put(place, value)

    def _first_difference(self, replayed: Sequence[torch.Tensor], eager: Sequence[torch.Tensor]) -> str:
        """Describe the first tensor that differs, those with a name before the others and the losses."""
        names = [self._names.get(id(tensor), "") for tensor in eager]
        differing = [i for i, (a, b) in enumerate(zip(replayed, eager, strict=True)) if self._repeat.differ(a, b)]
        order = {name: place for place, name in enumerate(self._names.values())}
        place = min(differing, key=lambda i: order.get(names[i], len(order) + i))
        b = eager[place].detach()
        a = replayed[place].detach().to(b.device)
        what = names[place] or (f"a tensor {list(b.shape)} outside of the array" if place else "the loss")
        if not b.dim() or a.shape != b.shape:
            return f"{what} is another one"
        model = next((i for i in range(len(b)) if self._repeat.differ(a[i], b[i])), 0)
        far = (a[model].double() - b[model].double()).abs().max() if not b.is_complex() else None
        return f"{what} of model {self._start + model} differs" + ("" if far is None else f" by {float(far):.3g}")

    def _unseen(self) -> str:
        """Name values that the code reads and that no guard looks into: they may be what is new."""
        objects = (one for reader in self._numbers.readers for one in reader.walk().objects)
        kinds = dict.fromkeys(type(one).__name__ for one in objects if not isinstance(one, _LOOKED_INTO))
        shown = ", ".join(list(kinds)[:_SHOWN])
        return f"; its code reads objects of which no guard sees all: {shown}" if shown else ""


def _stale(why: str) -> StaleRecording:
    return StaleRecording(
        f"the eager step is another one than its replay: {why}. Something that no guard sees has changed since it was "
        "recorded. The step was not taken; further steps run eager, until StepRunner.refresh"
    )


def _other_value(replayed: Mapping[str, Any], eager: Mapping[str, Any]) -> str | None:
    """Name a Python value of the modules that the eager step leaves different from the replay; None without one."""
    for name in {**replayed, **eager}:
        if is_in_a_model_apart(name) and not (name in replayed and name in eager):
            continue  # the eager step has made the plain models, or others
        a, b = replayed.get(name), eager.get(name)
        if type(a) is not type(b) or (a != b and repr(a) != repr(b)):  # NaN is like itself
            return f"the Python value {name} is {a!r} after the replay and {b!r} after the eager step"
    return None


_SHIFT = 387  # by which the place in a stretch moves on, so that what happens every tenth step is met, too
_RETRY = 10  # replayed steps until the next try, where a step was not replayed after all


class Audits:
    """Count of replayed steps and of their audits: the 10th, 100th, 1,000th, ... and one in each `every` steps.

    Args:
        every: 0 for no audit.

    Attributes:
        passed: audits in which both ways left the same bits.

    Raises:
        InvalidArgument: `every` is no whole number of 0 or more.
    """

    def __init__(self, every: Any) -> None:
        if not isinstance(every, int) or isinstance(every, bool) or every < 0:
            raise InvalidArgument(
                f"audit must be a whole number: 1000 audits a replayed step in each thousand, 0 none; got {every!r}"
            )
        self._every, self._replayed, self.passed = every, 0, 0
        self._next = min(self._after(0))

    @property
    def first_is_past(self) -> bool:
        """True if as many steps were replayed as the first audit takes to come, or none comes."""
        return not self._every or self._replayed >= min(self._after(0))

    def passes(self) -> bool:
        """Count a step that is to be replayed, unless it shall be audited: `due` then counts it."""
        if self._every > 0 and self._replayed + 1 >= self._next:
            return False
        self._replayed += 1
        return True

    def due(self, replayed: bool) -> bool:
        """Count a step that is asked for, if it is to be `replayed`; return True if it shall be audited."""
        self._replayed += replayed
        return replayed and self._every > 0 and self._replayed >= self._next

    def end(self, compared: bool) -> None:
        """Take note of an audit that has passed, or of a step that was not replayed after all."""
        self.passed += compared
        self._next = min(self._after(self._replayed)) if compared else self._replayed + _RETRY

    def _after(self, step: int) -> Iterator[int]:
        """Yield the next audits after a step, of each kind."""
        yield 10 ** max(1, len(str(step)))
        every = max(1, self._every)
        if step < every:
            yield every
        for stretch in range(max(1, step // every), step // every + 2):
            place = stretch * every + 1 + stretch * _SHIFT % every
            if place > step:
                yield place
