# SPDX-License-Identifier: MIT
"""Python numbers in a batch, read like those that code reaches outside of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..._state import Path, Put
from ..batches import with_parts
from .arithmetic import is_number
from .value_readers import Reader, Scope


class BatchNumbers(Reader):
    """Reader of the plain numbers in the batch of the step under way, in order."""

    __slots__ = ("_held", "_replaced")

    def __init__(self) -> None:
        super().__init__(Scope(), "the batch", "")
        self._held: tuple[Any, ...] = ()
        self._replaced = False

    def take(self, numbers: tuple[Any, ...]) -> None:
        """Begin a step on a batch with these numbers."""
        self._held, self._replaced = numbers, False

    def __call__(self) -> Any:
        return self._held

    def held(self) -> Any:
        return self._held

    def put(self, value: Any) -> None:
        self._held, self._replaced = value, True

    def places(self) -> Iterator[tuple[Path, Any, Put]]:
        for place, value in enumerate(self._held):
            yield (place,), value, self._setter(place)

    def _setter(self, place: int) -> Put:
        return lambda value: self.put((*self._held[:place], value, *self._held[place + 1 :]))

    def filled(self, batch: Any) -> Any:
        """Return the batch with its numbers replaced by those that were put."""
        if not self._replaced:
            return batch
        left = iter(self._held)

        def fill(value: Any) -> Any:
            if is_number(value):
                return next(left)
            return [fill(part) for part in value] if type(value) is list else with_parts(value, fill)

        return fill(batch)


def on_filled(train: Callable[..., Any], numbers: BatchNumbers) -> Callable[..., Any]:
    """Wrap `train(batch, hyper)` so that it sees the replaced numbers of the batch."""
    return lambda batch, hyper: train(numbers.filled(batch), hyper)
