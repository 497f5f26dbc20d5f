# SPDX-License-Identifier: MIT
"""Steps under way: threads may still train an array when its caller goes on.

Code that reads or changes its state waits for them first, as reading a tensor on a GPU waits for earlier kernels."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from .errors import InvalidArgument

#: By owner: who waits, held weakly, and its method. A `WeakMethod` complains when both end with the interpreter.
_waits: weakref.WeakKeyDictionary[Any, list[tuple[weakref.ref[Any], Callable[[Any], bool]]]] = (
    weakref.WeakKeyDictionary()
)


def announce(owner: Any, wait: Callable[[], bool]) -> None:
    """Let `finish(owner)` call the method `wait` as long as its object lives; neither is kept alive. It returns False,
    at once, if a step under way asks."""
    who, function = wait.__self__, wait.__func__  # type: ignore[attr-defined]
    held = [known for known in _waits.get(owner, ()) if known[0]() is not None]
    if not any(known() is who and other is function for known, other in held):
        _waits[owner] = [*held, (weakref.ref(who), function)]


def finish(owner: Any) -> bool:
    """Wait until no step that trains `owner`, an array or an optimizer, is under way; False if such a step asks."""
    done = True
    for held, wait in _waits.get(owner, ()) if owner is not None else ():
        who = held()
        if who is not None and wait(who) is False:
            done = False
    return done


def finish_to_compute(array: Any) -> None:
    """Wait as `finish` does, before code computes with an array; refuse a step that does so with the array it trains a
    part of."""
    if not finish(array):
        raise InvalidArgument(whole_array_used())


_cut = threading.local()


@contextlib.contextmanager
def cut_in(parts: int) -> Iterator[dict[int, Any]]:
    """Compute a loss on one of `parts` parts of a batch, whose tensors of the whole go into the dictionary by the
    identity of the part's."""
    _cut.now = parts, {}
    try:
        yield _cut.now[1]
    finally:
        del _cut.now


def whole_of(tensor: Any) -> tuple[Any, int]:
    """Return (what `tensor` was cut from, or None, and the number of parts); outside of `cut_in` itself and 1."""
    parts, wholes = getattr(_cut, "now", (1, {id(tensor): tensor}))
    return wholes.get(id(tensor)), parts


def whole_array_used() -> str:
    """Return the error of a step whose loss function computes with the array that it trains a part of."""
    return (
        "the loss function of a StepRunner computes with the whole array or a layer of it, whose parameters are not "
        "trained in this step: use the array that is its first argument, which holds the models to train"
    )
