# SPDX-License-Identifier: MIT
"""Comparison of two recordings of a step, and of the tensors they leave; Python state around a trial step.

A step that is run in addition to those asked for must leave the user's objects unchanged: every flag, every list. If a
value cannot be restored, such as an iterator, the trial step is not run."""

from __future__ import annotations

import random
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from ..._fuse import hooks_in, models_apart, plain_models_of
from ..._state import Contents, Kept, Unknown, keep_bindings, keep_names, keep_reference
from ...nn.array_module import ArrayModule
from ...nn.model_tensor import ModelTensor
from ...ops import as_real
from .guards import is_state, modules_of
from .library import Read
from .plan import StepRecording, TensorSlot, slots_of
from .script import same_bits
from .value_readers import Reader


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
    yield keep_reference(reader.held, reader.put)
    if isinstance(held, _NAMESPACES):
        names = reader.walk().names
        yield keep_bindings(held, [
            name for name, value in vars(held).items()
            if not name.startswith("__") and (names is None or name in names) and not _is_code(value)
        ])  # fmt: skip


def _is_code(value: Any) -> bool:
    return isinstance(value, (*_NAMESPACES, types.FunctionType)) or hasattr(type(value), "__get__")


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
