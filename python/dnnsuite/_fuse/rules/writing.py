# SPDX-License-Identifier: MIT
"""In-place functions, and the tensors that have to be computed before one writes."""

from __future__ import annotations

import functools
import sys
from typing import Any

from ..._torch import tree_leaves
from ...nn.model_tensor import ModelTensor, state

IN_PLACE_OPERATORS = frozenset(
    [
        *("add", "sub", "mul", "div", "truediv", "floordiv", "mod", "pow", "and", "or", "xor"),
        *("lshift", "rshift"),
    ]
)


@functools.lru_cache(maxsize=4096)
def in_place(func: Any) -> bool:
    """Return True if a function writes into its first argument."""
    name: str = func.__name__
    if name.startswith("__"):
        return (name[2] == "i" and name[3:-2] in IN_PLACE_OPERATORS) or name == "__setitem__"
    return name.endswith("_")


def settle_since(mark: int, output: Any = None) -> None:
    """Compute deferred tensors that are needed, of those created after the first `mark`.

    A module's `output` stays deferred if the caller may take its maximum.
    """
    late = state.pending[mark:]
    del state.pending[mark:]
    if late and output is not None:
        for tensor in tree_leaves(output):
            waiting = tensor.deferred if type(tensor) is ModelTensor else None
            if waiting is not None and waiting.layer.before_maximum(waiting.x):
                late = [other for other in late if other is not tensor]
                state.pending.append(tensor)
    while late:
        tensor = late.pop()
        # What was done together with its successor, and no one holds any more, is not done again.
        if tensor.deferred is not None and not (tensor.deferred.taken and sys.getrefcount(tensor) <= 2):
            tensor.value  # noqa: B018


def settle() -> None:
    """Compute all deferred tensors, before something is written in place."""
    settle_since(0)
