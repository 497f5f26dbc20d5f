# SPDX-License-Identifier: MIT
"""Steps under way: threads may still train an array when its caller goes on.

Code that reads or changes its state waits for them first, as reading a tensor on a GPU waits for earlier kernels."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

#: By owner: who waits, held weakly, and its method. A `WeakMethod` complains when both end with the interpreter.
_waits: weakref.WeakKeyDictionary[Any, list[tuple[weakref.ref[Any], Callable[[Any], None]]]] = (
    weakref.WeakKeyDictionary()
)


def announce(owner: Any, wait: Callable[[], None]) -> None:
    """Let `finish(owner)` call the method `wait` as long as its object lives; neither is kept alive."""
    who, function = wait.__self__, wait.__func__  # type: ignore[attr-defined]
    held = [known for known in _waits.get(owner, ()) if known[0]() is not None]
    if not any(known() is who and other is function for known, other in held):
        _waits[owner] = [*held, (weakref.ref(who), function)]


def finish(owner: Any) -> None:
    """Wait until no step that trains `owner`, an array or an optimizer, is under way."""
    for held, wait in _waits.get(owner, ()):
        who = held()
        if who is not None:
            wait(who)
