# SPDX-License-Identifier: MIT
"""Memory of an array's parameters and buffers: what all models share, and what each has of its own."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ..nn.sharing import held_once


class StateBytes(NamedTuple):
    """Bytes of parameters and buffers.

    `shared` are held once, whatever the number of models; `per_model` by each model. `shared + B * per_model` is what B
    models take, without gradients and optimizer state, which only `trained_per_model` of them have.
    """

    shared: int
    per_model: int
    trained_per_model: int


def state_bytes(array: torch.nn.Module) -> StateBytes:
    """Count the bytes of an array's parameters and buffers; tied ones once."""
    tensors = {id(x): x for x in (*array.parameters(), *array.buffers()) if x.dim() > 0 and len(x) > 0}
    shared = sum(x[0].nbytes for x in tensors.values() if held_once(x))
    own = [x for x in tensors.values() if not held_once(x)]
    trained = sum(x[0].nbytes for x in own if x.requires_grad)
    return StateBytes(shared, sum(x[0].nbytes for x in own), trained)
