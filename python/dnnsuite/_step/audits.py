# SPDX-License-Identifier: MIT
"""Schedule of a StepRunner's audits: at first often, then so seldom that they hardly take time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import InvalidArgument

__all__ = ["Audits"]

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
