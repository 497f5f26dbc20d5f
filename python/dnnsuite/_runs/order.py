# SPDX-License-Identifier: MIT
"""Orders of a plan's runs, such that a drift of the machine does not always meet the same ones."""

from __future__ import annotations

import random
from collections.abc import Sequence

from ..errors import InvalidArgument, did_you_mean

ORDERS = ("fixed", "shuffled")


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
