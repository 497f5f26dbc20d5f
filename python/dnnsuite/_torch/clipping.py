# SPDX-License-Identifier: MIT
"""Torch's clipping of gradients, whose two steps are taken over for tensors of arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .lookup import get, note_lost

__all__ = ["take_over_clipping"]

_clip_functions: list[Any] = get("clip")


def take_over_clipping(total_norm: Callable[..., Any], clip: Callable[..., Any]) -> None:
    """Let calls of torch's `get_total_norm` and `clip_grads_with_norm_` go to these functions, which get torch's own as
    their first argument. The change is inside of torch's functions, so code that has imported them sees it."""
    for function, own in zip(_clip_functions, (total_norm, clip), strict=False):
        cell = _wrapped(function)
        if not isinstance(cell.cell_contents, functools.partial):
            cell.cell_contents = functools.partial(own, cell.cell_contents)


def _wrapped(function: Any) -> Any:
    """Return the cell in which torch's `_no_grad` keeps the function that it wraps."""
    return function.__closure__[function.__code__.co_freevars.index("func")]


try:
    for _clip_function in _clip_functions:
        _wrapped(_clip_function)
except (AttributeError, TypeError, ValueError):  # wrapped in another way
    _clip_functions = []
    note_lost("clip")
