# SPDX-License-Identifier: MIT
"""Few combinations of many factors: every two values of two factors together at least once, as far as allowed."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Values = dict[str, Any]


def _pairs(values: Values) -> set[tuple[Any, ...]]:
    return {(a, values[a], b, values[b]) for a, b in itertools.combinations(sorted(values), 2)}


def pairwise(
    factors: Mapping[str, Sequence[Any]],
    allowed: Callable[[Values], bool],
    seed: int,
    most: int | None = None,
    tries: int = 60,
) -> list[Values]:
    """Choose combinations in the order of how much each adds, until nothing is added or there are `most`.

    Args:
        factors: the values of each factor, by its name.
        allowed: says whether a combination may be chosen.
        seed: of the candidates that are looked at.
        tries: candidates for each place.
    """
    draw = random.Random(seed)
    seen: set[tuple[Any, ...]] = set()
    chosen: list[Values] = []
    while most is None or len(chosen) < most:
        candidates = [{name: draw.choice(list(values)) for name, values in factors.items()} for _ in range(tries)]
        candidates = [values for values in candidates if allowed(values)]
        best = max(candidates, key=lambda values: len(_pairs(values) - seen), default=None)
        if best is None or not _pairs(best) - seen:
            return chosen
        seen |= _pairs(best)
        chosen.append(best)
    return chosen
