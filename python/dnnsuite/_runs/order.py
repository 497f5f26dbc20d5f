# SPDX-License-Identifier: MIT
"""Orders of a plan's runs, such that a drift of the machine does not always meet the same ones."""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence
from typing import TypeVar

from ..errors import InvalidArgument, did_you_mean

__all__ = ["ORDERS", "interleave", "ordered"]

Key = TypeVar("Key", bound=Hashable)

ORDERS = ("fixed", "shuffled")


def interleave(keys: Sequence[Key], repeats: int, seed: int = 0) -> list[tuple[int, Key]]:
    """Go through all keys once per repeat, as (repeat, key), so that a drift of the machine meets all of them alike.

    Repeats come in pairs: a shuffled order, then the same order backwards (ABBA), which cancels a linear
    drift between any two keys. The next pair is shuffled anew; the same seed gives the same order.

    >>> sorted(interleave(["a", "b"], repeats=2))
    [(0, 'a'), (0, 'b'), (1, 'a'), (1, 'b')]
    """
    generator = random.Random(seed)
    order: list[Key] = list(keys)
    plan: list[tuple[int, Key]] = []
    for repeat in range(repeats):
        if repeat % 2 == 0:
            generator.shuffle(order)
        else:
            order.reverse()
        plan.extend((repeat, key) for key in order)
    return plan


def ordered(kind: str, keys: Sequence[str], repeat: int, seed: int) -> list[str]:
    """Order the keys as given (`fixed`), or by the seed and the repeat alone (`shuffled`).

    Raises:
        InvalidArgument: `kind` is none of ORDERS.
    """
    if kind not in ORDERS:
        raise InvalidArgument(f"--order {kind}: accepted: {', '.join(ORDERS)}{did_you_mean(kind, ORDERS)}")
    keys = list(keys)
    if kind == "shuffled":
        random.Random(f"{seed}/{repeat}").shuffle(keys)
    return keys
