# SPDX-License-Identifier: MIT
"""Things outside of its batch and of its array that a step sees, or changes.

Steps of several threads run while their caller does other things: what it writes into a tensor that they read would be
seen by some of them, and is refused. Another array that a loss function computes with has no shards, so then there are
none. A loss function that changes a value outside of it, such as a counter in a closure, is called once in a step:
Python runs the code of several shards one after the other, and each would count. All that a step may change is
therefore copied before Python runs in the first of them. If the code has changed such a value, the step is undone, and
one shard of all models takes it.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from .._fuse import arrays_in
from .._fuse import width as array_width
from ..errors import InvalidArgument
from ..nn.model_tensor import ModelTensor
from .capture import Audit, CapturedStep
from .capture.reach import Reach
from .capture.value_readers import Reader


def width_beside_others(array: torch.nn.Module, reached: Sequence[torch.nn.Module], width: int | None) -> int | None:
    """Choose the models per shard for loss functions that compute with other arrays, such as a target network: all of
    them, for the others have no shards. Without others it is the user's `width`.

    Args:
        reached: `arrays_reached` by the loss functions.

    Raises:
        InvalidArgument: the user wants narrower shards.
    """
    other = next((one for one in reached if not has_part(array, [one])), None)
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


def has_part(array: torch.nn.Module, modules: Sequence[torch.nn.Module]) -> bool:
    """Return True if one of these modules is the array, or a part of it."""
    known = {id(part) for part in (array.modules() if modules else ())} | {id(array.__dict__.get("_root"))}
    return any(id(one) in known for one in modules)


def arrays_reached(losses: Sequence[Any]) -> list[torch.nn.Module]:
    """List the arrays, and the modules of arrays, that loss functions see beside their arguments."""
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
    return [one for value in held for one in arrays_in(value)]


class OutsideState:
    """Tensors that code closes over, or reaches by names: its caller, who may change them once `step` has returned, is
    told where one was written under a replay that reads it."""

    def __init__(self, readers: Sequence[Reader]) -> None:
        self._readers, self._own = readers, set[int]()
        self.look()

    def look(self) -> None:
        """Find the tensors that are seen now."""
        found = {id(one): one for reader in self._readers for one in reader.walk().objects}
        tensors = (one for one in found.values() if isinstance(one, torch.Tensor))
        seen = (one for one in tensors if type(one) is not ModelTensor and id(one) not in self._own)
        self._tensors = [one for one in seen if not one.is_inference()]
        self._versions = [one._version for one in self._tensors]

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


class CallOnce(Exception):
    """Raised where code must be called once for all models; the message is the mode of further steps, and empty where
    nobody knows yet whether it changes a value that cannot be put back: no code has run then."""


class OneCall:
    """Watch over the Python code of the steps of several shards.

    Args:
        captured: the steps of the shards.
        trusted: steps of all models have shown that the code moves nothing that cannot be put back.

    Attributes:
        ragged: the batches of the models differ in size, so that code can only run for one after the other.
    """

    def __init__(self, captured: Sequence[CapturedStep], trusted: bool) -> None:
        self._captured, self._trusted, self.ragged = captured, trusted, False
        self._kept: list[Audit] = []  # of all shards
        self._error: CallOnce | None = None
        self._lock = threading.Lock()  # threads that replay take a step in Python where its decisions differ
        around = weakref.WeakMethod(self._around)  # shards hold memory, and are let go with their last step
        for one in captured:
            one.around_python = around

    def begin(self, index: int) -> None:
        """Begin the step of one shard, unless code of another must be called once.

        Raises:
            CallOnce: it must.
        """
        if index == 0:
            self._kept, self._error = [], None
        elif self._error is not None:
            raise self._error

    @contextmanager
    def _around(self, one: CapturedStep) -> Iterator[None]:
        """Context manager: run the code of one shard.

        Raises:
            CallOnce: it must be called once; `undo` takes back what it has changed.
            InvalidArgument: it must, and models of other shards have taken the step.
        """
        if self.ragged:
            yield
            return
        with self._lock:
            first = one.alone and one is self._captured[0]
            found = [captured.keep() for captured in (self._captured if first else [one] if not self._kept else ())]
            kept = [each for each in found if each is not None]
            keeps = len(kept) == len(found) and all(each.python is not None for each in kept)
            if first:
                if not (keeps or self._trusted):
                    self._error = CallOnce()
                    raise self._error
                self._kept = kept
            yield
            if not one.changed_outside:
                return
            if self._kept and keeps:
                self._error = CallOnce(f"eager: {one.changed_outside}")
                raise self._error
            for each in kept:
                each.undo()
            raise InvalidArgument(
                f"{one.changed_outside}, and is called for each of several shards: give it what changes in the "
                "batch, keep that in an attribute of the models, or leave width out and use one thread"
            )

    def end(self, index: int) -> None:
        """End the step of one shard: the copies are let go with the last, unless `undo` is to come."""
        if index == len(self._captured) - 1 and self._error is None:
            self._kept = []

    def undo(self) -> None:
        """Give tensors and Python values what they had before the step."""
        for one in reversed(self._kept):
            one.undo()
        self._kept = []
