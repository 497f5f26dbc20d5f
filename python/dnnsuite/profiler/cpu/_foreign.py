# SPDX-License-Identifier: MIT
"""Detection of a torch profiler that the program starts: torch has one at a time, and the last to start gets it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

_WHAT = (("profile", "__init__"), ("profile", "__enter__"), ("emit_nvtx", "__enter__"), ("emit_itt", "__enter__"))


class ForeignRecorders:
    """Watch that calls `give_way` just before the program starts torch.profiler or torch.autograd.profiler.

    torch.profiler makes a `torch.autograd.profiler.profile` for each of its cycles, at its beginning.
    """

    def __init__(self, give_way: Callable[[], None]) -> None:
        self._give_way = give_way
        self._undo: ExitStack | None = None

    def watch(self) -> None:
        """Begin, after this package's recorder has started."""
        from torch.autograd import profiler

        with ExitStack() as undo:
            for kind, method in _WHAT:
                undo.enter_context(self._watched(getattr(profiler, kind), method))
            self._undo = undo.pop_all()

    def leave(self) -> None:
        """End. Idempotent."""
        undo, self._undo = self._undo, None
        if undo is not None:
            undo.close()

    @contextmanager
    def _watched(self, owner: Any, method: str) -> Iterator[None]:
        before = getattr(owner, method)

        @functools.wraps(before)
        def started(*args: Any, **kwargs: Any) -> Any:
            self._give_way()
            return before(*args, **kwargs)

        setattr(owner, method, started)
        try:
            yield
        finally:
            if getattr(owner, method) is started:
                setattr(owner, method, before)
