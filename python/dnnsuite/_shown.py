# SPDX-License-Identifier: MIT
"""Short texts of per-model values, for `repr` of objects that hold one value per model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["shown"]

_MOST = 6  # values that are listed one by one


def shown(values: Sequence[Any]) -> str:
    """Return a short text of B values: one if they are equal, the first and last of many.

    >>> shown([0.1, 0.1, 0.1])
    '0.1'
    >>> shown([0.1 * i for i in range(12)])
    '[0, 0.1, 0.2, ..., 1.1]'
    """
    texts = [_text(value) for value in values]
    if len(set(texts)) == 1:
        return texts[0]
    if len(texts) > _MOST:
        texts = [*texts[:3], "...", texts[-1]]
    return f"[{', '.join(texts)}]"


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else repr(value)
