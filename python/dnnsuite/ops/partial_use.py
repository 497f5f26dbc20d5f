# SPDX-License-Identifier: MIT
"""Parameters `[B, ...]` that only some of the models used in a backward pass.

A single torch model leaves the gradient of such a parameter None, and its optimizer skips it. The gradient of an array
is one tensor: the part of a model that did not use the parameter is filled with -0.0, which leaves sums unchanged,
stays -0.0 through sums of gradients and positive factors, and differs by its sign from the zeros of a model that did
use it.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import torch
from torch import Tensor

_known: dict[int, weakref.ref[Tensor]] = {}


def join_gradients(parameter: Tensor, grads: Sequence[Tensor | None]) -> Tensor | None:
    """Stack the models' gradients of a parameter `[B, ...]`; None if no model used it."""
    known = next((grad for grad in grads if grad is not None), None)
    if known is None:
        return None
    if any(grad is None for grad in grads):
        if parameter.is_leaf:
            note_partly_used(parameter)
        unused = torch.full_like(known, -0.0)
        grads = [unused if grad is None else grad for grad in grads]
    return torch.stack(list(grads))  # type: ignore[arg-type]


def note_partly_used(parameter: Tensor) -> None:
    """Note that parts of the gradient of `parameter` may be -0.0 because a model did not use it."""
    key = id(parameter)
    if key not in _known:
        _known[key] = weakref.ref(parameter, lambda _: _known.pop(key, None))


def partly_used(params: Sequence[Tensor]) -> list[Tensor]:
    """List those of `params` that, in some backward pass, one model used and another did not."""
    return [p for p in params if id(p) in _known] if _known else []


def users_of(grad: Tensor) -> Tensor:
    """Find the models that used the parameter of this gradient `[B, ...]`; bool `[B]`."""
    unused = (grad == 0).logical_and_(grad.signbit())
    return ~unused.reshape(grad.size(0), -1).all(1)
