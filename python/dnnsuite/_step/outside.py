# SPDX-License-Identifier: MIT
"""State outside of the array and its batch that a step sees: values, and the random generators of the process."""

from __future__ import annotations

import functools
import random
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from .._code import changes_of, codes_of, content_of
from .._fuse import arrays_in, generator_loans
from .._fuse import width as array_width
from .._fuse.code.late_draws import is_followed
from ..errors import InvalidArgument
from ..nn.model_tensor import ModelTensor
from .capture.reach import Reach
from .capture.value_readers import Reader


def width_beside_others(array: torch.nn.Module, losses: Sequence[Any], width: int | None) -> int | None:
    """Choose the models per shard for loss functions that compute with other arrays, such as a target network: all of
    them, for the others have no shards. Without others it is the user's `width`.

    Raises:
        InvalidArgument: the user wants narrower shards.
    """
    known = _parts_of(array)
    other = next((one for one in _arrays_reached(losses) if id(one) not in known), None)
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


def reaches(array: torch.nn.Module, losses: Sequence[Any]) -> bool:
    """Return True if loss functions see the array, or a part of it, beside their first argument."""
    known = _parts_of(array)
    return any(id(one) in known for one in _arrays_reached(losses))


def _parts_of(array: torch.nn.Module) -> set[int]:
    return {id(part) for part in array.modules()} | {id(array.__dict__.get("_root"))}


def _arrays_reached(losses: Sequence[Any]) -> Iterator[torch.nn.Module]:
    """Yield the arrays, and the modules of arrays, that loss functions see beside their arguments."""
    reach, held = Reach(), list[Any]()
    for loss in losses:
        while isinstance(loss, functools.partial):
            held += [*loss.args, *loss.keywords.values()]
            loss = loss.func
        reach.call(loss)
    for reader in reach.readers:
        value = reader.held()
        whole = isinstance(value, torch.nn.Module) or not hasattr(value, "__dict__")
        held += [value] if whole else [part for name, part in vars(value).items() if name in reach.names]
    for value in held:
        yield from arrays_in(value)


def writes_outside(functions: Iterable[types.FunctionType]) -> bool:
    """Return True if code writes to globals, to variables that it closes over, or into containers and objects under
    such names: shards whose code does would overwrite each other's values side by side, also where each step ends
    with the value that it began with."""
    return any(_writes(code, function) for function in functions for code in codes_of(function.__code__))


def _writes(code: types.CodeType, function: types.FunctionType) -> bool:
    outer = function.__code__.co_freevars
    for root, name in changes_of(code):
        if not root or (root in code.co_freevars and root not in outer):
            continue  # an argument's, or a variable of a function around it that is inside this one
        value = _value_of(root, function)
        is_tensors = isinstance(value, (torch.nn.Module, torch.Tensor))
        is_installed = isinstance(value, types.ModuleType) and not is_followed(value.__name__)
        if not is_tensors and not (is_installed and root == name):  # torch.add is no container's method
            return True
    return False


def _value_of(name: str, function: types.FunctionType) -> Any:
    if name in function.__code__.co_freevars:
        return content_of((function.__closure__ or ())[function.__code__.co_freevars.index(name)])
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


class SharedDraws:
    """Detection of steps that draw from a generator of the process, lend torch's generator to a model, or change
    a value outside of the array.

    Such steps run in the caller's thread, shard after shard: in threads the order of draws and of changes would vary,
    and those of the caller would mix with the models'.
    """

    def __init__(self, outside: Callable[[], Any] = lambda: None) -> None:
        """`outside` reads the values outside of the array that the steps can see."""
        self._outside = outside
        self.found = False
        self.known = False  # a step was watched
        self._before: Any = None

    def begin(self) -> None:
        """Note the generators before a step that runs alone."""
        self._before = None if self.found else (_state(), self._outside())

    def end(self) -> None:
        """Compare the generators after it."""
        self.known = True
        self.found = self.found or (_state(), self._outside()) != self._before


def _state() -> tuple[Any, ...]:
    numpys: Any = np.random.get_state()
    return (torch.get_rng_state().tolist(), numpys[1].tolist(), numpys[2:], random.getstate(), generator_loans())
