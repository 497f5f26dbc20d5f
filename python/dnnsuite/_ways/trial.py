# SPDX-License-Identifier: MIT
"""Trial of a few ways to do the same: who runs them tells their seconds, and is told which to run next.

The runs of a trial are those that are wanted anyway, such as the steps of a training, so a trial costs no more than
that some of them are slower. The ways take turns, for a machine becomes busy and idle again, and the fastest run of
each counts, for what disturbs a run makes it slower and never faster.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Generic, TypeVar

from .table import Answer, table

W = TypeVar("W", bound=Hashable)

_CLEAR = 1.15  # times the fastest way's seconds: a difference that few runs tell


class Trial(Generic[W]):
    """Trial of `ways`: do the next run by `now`, and tell its seconds to `add`, until `done`; go on by `now` then.

    Args:
        ways: booleans, numbers or strings, in the order in which they are tried.
        key: name of the answer in this machine's table. One that counts is taken without a trial; None keeps none.
        timed: runs of a way in each turn.
        turns: turns of each way.
        most: turns of each way where the fastest two are less than 15 % apart.
        untimed: first runs of each way, which warm up.
        level: share of the first way's seconds that another must stay below to be taken in its place.
        slow: times the fastest way's seconds, from which on a way gets no further turn.
        climbs: the ways are neighbours, of which one is the best and those further from it are worse: the next one is
            tried only while each was faster than those before it.
    """

    def __init__(
        self,
        ways: Sequence[W],
        key: str | None = None,
        *,
        timed: int = 1,
        turns: int = 1,
        most: int = 0,
        untimed: int | Mapping[W, int] = 0,
        level: float = 1.0,
        slow: float = math.inf,
        climbs: bool = False,
    ) -> None:
        self.ways, self.now, self.done = tuple(ways), ways[0], len(ways) == 1
        self._key, self._timed, self._turns, self._most = key, timed, turns, most
        self._untimed = dict.fromkeys(ways, untimed) if isinstance(untimed, int) else dict(untimed)
        self._level, self._slow, self._climbs = level, slow, climbs
        self._runs: dict[W, list[float]] = {way: [] for way in ways}
        known = None if self.done or key is None else table().get(key)
        self._known = known if known is not None and known.way in ways else None
        if self._known is not None:
            self.settle(self._known.way)

    def add(self, seconds: float, way: W | None = None, warm: bool = False) -> bool:
        """Take the seconds of a run by `now`, or by the `way` that is named; return True if it is none that warms up.
        A `warm` one is the last of those."""
        way = self.now if way is None else way
        if self._untimed[way]:
            self._untimed[way] = 0 if warm else self._untimed[way] - 1
            return False
        self._runs[way].append(seconds)
        if not self.done:
            self._go_on()
        return True

    def _go_on(self) -> None:
        least = {way: min(runs) for way, runs in self._runs.items() if runs}
        most = self._slow * min(least.values())
        going = [way for way in self.ways if least.get(way, 0.0) <= most or not self._turns_of(way)]
        if self._climbs and (tried := list(least))[-1] != min(tried, key=lambda way: least[way]):
            going = [way for way in going if way in least]
        self.now = min(going, key=self._turns_of)
        turns = self._turns_of(self.now)
        if turns < self._turns:
            return
        fastest, *others = sorted(least, key=lambda way: least[way])
        if turns >= self._most or least[others[0]] > _CLEAR * least[fastest]:
            first = self.ways[0]
            self.settle(fastest if least[fastest] < self._level * least[first] else first, keep=True)

    def _turns_of(self, way: W) -> int:
        return len(self._runs[way]) // self._timed

    def settle(self, way: W, keep: bool = False) -> None:
        """End the trial with this way; `keep` it as the answer."""
        self.now, self.done = way, True
        if keep and self._key is not None:
            table().put(self._key, self.answer())

    def answer(self, left: Sequence[str] = ()) -> Answer:
        """Return the answer, with the names of ways that were `left` out."""
        return Answer(self.now, {str(way): (min(s), max(s)) for way, s in self._runs.items() if s}, tuple(left))

    def least(self, way: W) -> float:
        """Return the seconds of the fastest run of a way, in this trial or in the one that is known; NaN for none."""
        known = {} if self._known is None else self._known.seconds
        return min(self._runs[way], default=known.get(str(way), (math.nan,))[0])

    @property
    def why(self) -> str:
        """Times that were measured, in words; empty where none was."""
        told = [f"{way} {1e3 * s:.3g} ms" for way in self.ways if not math.isnan(s := self.least(way))]
        return f"measured{' on an earlier run' * (self._known is not None)}: {', '.join(told)}" if told else ""
