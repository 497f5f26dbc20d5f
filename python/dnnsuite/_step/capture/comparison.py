# SPDX-License-Identifier: MIT
"""Comparison of two recordings of a step, and of the tensors they leave; Python state around a trial step; audits.

A step that is run in addition to those asked for must leave the user's objects unchanged: every flag, every list. If a
value cannot be restored, such as an iterator, the trial step is not run.

Guards compare what this package knows that Python reads. What no guard can see, such as the state of a C library, would
go on unnoticed: an audit finds its effect. The step is run both ways from one state, and is taken only if both leave
the same bits. All that a step changes is copied before, so that no shard has taken a step that fails its audit.
"""

from __future__ import annotations

import contextlib
import random
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..._fuse import hooks_in, is_in_a_model_apart, models_apart, plain_models_of
from ..._state import Contents, Kept, Unknown, keep_bindings, keep_names, keep_reference
from ...errors import InvalidArgument, StaleRecording
from ...nn.array_module import ArrayModule
from ...nn.model_tensor import ModelTensor
from ...ops import as_real
from .guards import is_state, modules_of, put_back, tensors_left, ways
from .library import Read
from .plan import StepRecording, TensorSlot, slots_of
from .python_state import python_values
from .script import described, same_bits
from .value_readers import Reader

if TYPE_CHECKING:
    from .watched_step import StepWatch

_LOOKED_INTO = (torch.Tensor, torch.nn.Module, type, types.ModuleType, types.FunctionType, types.MethodType)
_SHOWN = 3  # values that a message names


class State:
    """Values of tensors, to be put back or exchanged with the current ones.

    Args:
        home: device of the copies, if it is not that of the tensors.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], home: torch.device | None = None) -> None:
        self.tensors = _once(tensors)
        self._home = home
        self.values = [self.copied(t) for t in self.tensors]

    def copied(self, tensor: torch.Tensor) -> torch.Tensor:
        """Copy a tensor to where the copies are."""
        return tensor.detach().clone() if self._home is None else tensor.detach().to(self._home, copy=True)

    def put_back(self) -> None:
        """Give the tensors these values."""
        for tensor, value in zip(self.tensors, self.values, strict=True):
            tensor.detach().copy_(value)

    def exchange(self) -> None:
        """Swap the tensors' values with these, so that one copy of the state is enough."""
        for place, tensor in enumerate(self.tensors):
            after = self.copied(tensor)
            tensor.detach().copy_(self.values[place])
            self.values[place] = after

    def storages(self) -> set[int]:
        """Collect the storages of the tensors."""
        return {t.untyped_storage()._cdata for t in self.tensors}


def reads_of(recording: StepRecording, inputs: list[torch.Tensor]) -> list[Read]:
    """List the tensors whose values decide on a step: Python has read them, or shapes follow from them."""
    places = {slot: place for place, slot in enumerate(recording.inputs)}
    reads = []
    for slot, where in sorted(recording.read.items()):
        place = places.get(slot)
        tensor = recording.external[slot] if place is None else inputs[place]
        reads.append(Read(place, tensor, tensor.detach().clone(), version=tensor._version, where=where))
    return reads


def difference(first: StepRecording, second: StepRecording) -> str | None:
    """Explain why two recordings are not one and the same step; None if they are."""
    for a, b in zip(first.calls, second.calls, strict=False):
        if a.op is not b.op:
            return f"one step calls {a.name} where the next calls {b.name}{b.place}"
        if not _alike(a.arguments, b.arguments):
            return f"{a.name} gets {_first_difference(a.arguments, b.arguments)}{b.place}"
    if first.left != second.left:
        return "two steps leave other tensors in the attributes of modules"
    if len(first.calls) != len(second.calls):
        return f"one step has {len(first.calls)} operators, the next {len(second.calls)}"
    for slot, tensor in first.external.items():
        other = second.external.get(slot)
        if other is None:
            return f"two steps use different tensors{_place_of(first, slot)}"
        if tensor.data_ptr() != other.data_ptr() and (
            first.storage[slot] in first.written or not same_bits(tensor, other)
        ):
            return f"a tensor {list(tensor.shape)} is another one in the next step{_place_of(first, slot)}"
    return None


def _place_of(recording: StepRecording, slot: int) -> str:
    """Name the line of the user's code that first uses a tensor; empty if it is none."""
    return next((call.place for call in recording.calls if slot in slots_of(call.arguments)), "")


def _alike(a: Any, b: Any) -> bool:
    """Return True for arguments that no operator can tell apart; NaN is like itself, and 1 is not 1.0."""
    if type(a) is not type(b):
        return False
    if type(a) is TensorSlot:
        return bool(a.index == b.index)
    if type(a) in (list, tuple):
        return len(a) == len(b) and all(map(_alike, a, b))
    return a is b or (type(a) in (int, bool, str) and a == b) or repr(a) == repr(b)


def _first_difference(a: Sequence[Any], b: Sequence[Any]) -> str:
    for x, y in zip(a, b, strict=True):
        if not _alike(x, y):
            return f"{x!r} in one step and {y!r} in the next"
    return "other arguments in the next step"


def _once(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Drop tensors in the same memory as another one, whatever the order of dimensions; an optimizer has a view of
    complex parameters as pairs of real numbers."""
    return list({_place(t): t for t in map(as_real, tensors)}.values())


def _place(t: torch.Tensor) -> tuple[Any, ...]:
    reach = 1 + sum((size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True))
    if reach == t.numel():  # without gaps
        return t.data_ptr(), t.numel(), t.dtype
    return t.data_ptr(), t.shape, t.stride(), t.dtype


_STEPS = __name__.rpartition("capture.")[0]
_NAMESPACES = (type, types.ModuleType)


class CannotBeKept(Exception):
    """Raised when a value that a step may change cannot be put back; the message names it."""


class KeptPython:
    """Values of the modules of `array` and of all that `readers` read, with their contents.

    Raises:
        CannotBeKept: one of them could not be restored.
    """

    def __init__(self, array: torch.nn.Module, readers: Iterable[Reader]) -> None:
        named = list(modules_of(array))
        for _, module in named[:]:
            named += models_apart(module)
        self._undo: list[Callable[[], None]] = [
            plain.marks() for _, module in named for plain in plain_models_of(module)
        ]
        bindings = [kept for reader in readers for kept in _bindings(reader)]
        try:
            self._contents = Contents(
                [*(module for _, module in named), *(part for kept in bindings for part in kept.parts)],
                {torch.nn.Module: _module, ModelTensor: _tensor},
                _is_of_steps,
                strict=True,
            )
        except Unknown as error:
            raise CannotBeKept(f"the code can reach {error.what}") from None
        self._contents.add(bindings)
        self._generators = random.getstate(), np.random.get_state(), torch.get_rng_state()

    def put_back(self) -> None:
        """Restore all values."""
        self._contents.restore()
        for undo in reversed(self._undo):
            undo()
        random.setstate(self._generators[0])
        np.random.set_state(self._generators[1])
        torch.set_rng_state(self._generators[2])


def _bindings(reader: Reader) -> Iterator[Kept]:
    """Keep what a reader reads; of a class or a module the values that code names."""
    held = reader.held()
    if reader.put is not None:
        yield keep_reference(reader.held, reader.put)
    if isinstance(held, _NAMESPACES):
        names = reader.walk().names
        yield keep_bindings(held, [
            name for name, value in vars(held).items()
            if not (name.startswith("__") or isinstance(value, (*_NAMESPACES, types.FunctionType)))
            and (names is None or name in names) and not hasattr(type(value), "__get__")
        ])  # fmt: skip


def _is_of_steps(value: Any) -> bool:
    """Return True for a runner and its parts, which code reaches where a trainer holds both: no forward changes them,
    and they hold all recordings."""
    return type(value).__module__.startswith(_STEPS)


def _module(module: torch.nn.Module) -> Iterable[Kept]:
    yield Kept(lambda: None, lambda content: None, lambda content: hooks_in(module))
    held = vars(module)
    if "_fused_parts" in held:  # models apart that the step makes go again, with what they have kept
        yield Kept(
            lambda: [held["_fused_parts"]], lambda content: held.update(_fused_parts=content[0]), lambda content: ()
        )
    if not isinstance(module, ArrayModule):
        yield keep_names(vars(module), _is_kept)


def _tensor(tensor: ModelTensor) -> Iterable[Kept]:
    yield Kept(lambda: tensor.value, tensor.become, lambda value: ())


def _is_kept(name: Any, value: Any) -> bool:
    """Return True for state of the user's, and for a tensor that a forward has left: the next forward may read it."""
    return is_state(name, value) or type(value) is ModelTensor


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
        self._repeat: Any = watch.replays.repeat(self._state)
        self._ways = ways(watch.array)
        self._before = self._numbers.now()
        self._left = tensors_left(watch.array)
        self.python: KeptPython | None = None  # Python values that the code can reach, if they can be put back
        with contextlib.suppress(CannotBeKept):  # the tensors, and numbers of a recording, are put back
            self.python = KeptPython(watch.array, self._numbers.readers)

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
            if not self._repeat.can_undo:
                raise
            self.undo()
            self._repeat.redo(replayed[1:])
            put_back(array, left)
        except Exception as error:
            raise _stale(f"the eager step fails with {described(error)}") from error
        if eager is None:  # it does not fit beside the graph
            return losses
        if ways(array) != self._ways:  # a part runs one by one since then, and rounds differently
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
        if self.python is not None:
            self.python.put_back()
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
