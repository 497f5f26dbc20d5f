# SPDX-License-Identifier: MIT
"""In which order the jobs of each run of a suite run."""

from __future__ import annotations

import random
from collections.abc import Sequence

from ..errors import InvalidArgument

__all__ = ["ORDERS", "order_of"]

ORDERS = ("fixed", "shuffled")


def order_of(kind: str, keys: Sequence[str], repeat: int, seed: int) -> list[str]:
    """The keys as the suite has them, or in an order that depends on the seed and the repeat alone.

    Shuffled, what drifts over hours (temperature, a neighbour) does not always meet the same job.

    Raises:
        InvalidArgument: `kind` is none of ORDERS.
    """
    if kind not in ORDERS:
        raise InvalidArgument(f"--order {kind}: accepted: {', '.join(ORDERS)}")
    keys = list(keys)
    if kind == "shuffled":
        random.Random(f"{seed}/{repeat}").shuffle(keys)
    return keys
