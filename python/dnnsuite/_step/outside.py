# SPDX-License-Identifier: MIT
"""State that a step's code sees outside of the array and its batch: it may change while the step is under way."""

from __future__ import annotations

import collections
import contextlib
import dis
import functools
import sys
import types
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from .._fuse import arrays_in
from .._fuse import width as array_width
from ..errors import InvalidArgument
from ..nn.model_tensor import ModelTensor
from ..ops.coupling_code import codes_of
from .capture.reach import Reach
from .capture.value_readers import Reader

__all__ = ["OutsideState", "width_beside_others", "writes_outside"]


def width_beside_others(array: torch.nn.Module, losses: Sequence[Any], width: int | None) -> int | None:
    """Choose the models per shard for loss functions that compute with other arrays, such as a target network: all of
    them, for the others have no shards. Without others it is the user's `width`.

    Raises:
        InvalidArgument: the user wants narrower shards.
    """
    reach, held = Reach(), list[Any]()
    for loss in losses:
        while isinstance(loss, functools.partial):
            held += [*loss.args, *loss.keywords.values()]
            loss = loss.func
        reach.call(loss)
    known = {id(part) for part in array.modules()} | {id(array.__dict__.get("_root"))}
    for reader in reach.readers:
        value = reader.held()
        whole = isinstance(value, torch.nn.Module) or not hasattr(value, "__dict__")
        held += [value] if whole else [part for name, part in vars(value).items() if name in reach.names]
    other = next((one for value in held for one in arrays_in(value) if id(one) not in known), None)
    if other is None:
        return width
    B = array_width(array)
    if width is not None and width < B:
        raise InvalidArgument(
            f"width={width}, but the loss function computes with another array, of "
            f"{getattr(other, 'single_name', type(other).__name__)}, which holds "
            "all models: leave width out, or make both networks parts of one module and fuse that"
        )
    return sys.maxsize  # also after models were added


_LOADS = frozenset(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF"))
_ITEM_STORES = frozenset(("STORE_SUBSCR", "DELETE_SUBSCR"))
_AFTER_A_LOAD = frozenset(("STORE_ATTR", "DELETE_ATTR"))
_COPIES = frozenset(("COPY", "DUP_TOP"))  # of an object whose attribute is added to
_CONTAINERS = (dict, list, set, bytearray, collections.deque, collections.UserDict, collections.UserList)
_MUTATORS = frozenset(
    (
        *(
            "append",
            "appendleft",
            "extend",
            "extendleft",
            "insert",
            "add",
            "update",
            "setdefault",
            "subtract",
        ),
        *("pop", "popleft", "popitem", "clear", "remove", "discard", "rotate", "sort", "reverse"),
    )
)


def writes_outside(functions: Iterable[types.FunctionType]) -> bool:
    """Return True if code writes to globals, to variables that it closes over, or into containers and objects under
    such names: shards whose code does would overwrite each other's values side by side, also where each step ends
    with the value that it began with."""
    return any(_writes(code, function) for function in functions for code in codes_of(function.__code__))


def _writes(code: types.CodeType, function: types.FunctionType) -> bool:
    steps = list(dis.get_instructions(code))
    stores_items = any(step.opname in _ITEM_STORES for step in steps)
    outer = function.__code__.co_freevars
    for step, then in zip(steps, [*steps[1:], steps[-1]], strict=True):
        if step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            return True
        if step.opname in ("STORE_DEREF", "DELETE_DEREF") and step.argval in outer:
            return True
        if step.opname not in _LOADS or (step.opname == "LOAD_DEREF" and step.argval not in outer):
            continue
        value = _value_of(step.argval, function)
        if isinstance(value, _CONTAINERS) and (stores_items or then.argval in _MUTATORS):
            return True
        changes = then.opname in _AFTER_A_LOAD or then.opname in _COPIES
        if changes and not isinstance(value, (torch.nn.Module, torch.Tensor)):
            return True
    return False


def _value_of(name: str, function: types.FunctionType) -> Any:
    if name in function.__code__.co_freevars:
        cell = (function.__closure__ or ())[function.__code__.co_freevars.index(name)]
        with contextlib.suppress(ValueError):  # not assigned yet
            return cell.cell_contents
        return None
    return function.__globals__.get(name)


class OutsideState:
    """Values and tensors that code closes over, or reaches by names.

    A step as written reads them while it runs, and a replay the tensors: its caller, who may change them once `step`
    has returned, waits for the first, and is told where a tensor was written under the second.
    """

    def __init__(self, readers: Sequence[Reader]) -> None:
        self._readers, self._own = readers, set[int]()
        self.any_values = any(reader.walk().holds_values for reader in readers)
        self.look()

    def look(self) -> None:
        """Find the tensors that are seen now."""
        found = {id(one): one for reader in self._readers for one in reader.walk().objects}
        tensors = (one for one in found.values() if isinstance(one, torch.Tensor))
        seen = (one for one in tensors if type(one) is not ModelTensor and id(one) not in self._own)
        self._tensors = [one for one in seen if not one.is_inference()]
        self._versions = [one._version for one in self._tensors]

    @property
    def any(self) -> bool:
        """True if a step as written may read what its caller changes."""
        return self.any_values or bool(self._tensors)

    def note_own(self) -> None:
        """Leave out tensors that were written since the last check, when one step was made: it writes them itself."""
        each = zip(self._tensors, self._versions, strict=True)
        self._own |= {id(one) for one, before in each if one._version != before}
        self.look()

    def check(self, under_way: bool) -> None:
        """Refuse a tensor that was written since the last step was asked for, if that was under way meanwhile."""
        now = [one._version for one in self._tensors]
        before, self._versions = self._versions, now
        if not under_way or now == before:
            return
        written = next(one for one, new, old in zip(self._tensors, now, before, strict=True) if new != old)
        raise InvalidArgument(
            f"a tensor {list(written.shape)} that the steps read, but not from their batch, was written while steps "
            "were under way in other threads, which may have seen either value: give it in the batch, or call "
            "runner.synchronize() before it is written"
        )
