# SPDX-License-Identifier: MIT
"""Activation checkpointing that draws the same random numbers the second time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.utils.checkpoint

from .model_tensor import state
from .random_streams import noted, repeated


def checkpoint(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call `function(*args, **kwargs)` without storing its activations; the backward pass computes them again.

    It calls `torch.utils.checkpoint.checkpoint(..., use_reentrant=False)`, and makes sure that dropout and other draws
    from an array's random streams are the same the second time. As in torch, buffers are updated both times. Use it
    around an array or around layers of this package. In the `forward` of a fused model, torch's own checkpoint,
    reentrant or not, does the same.
    """
    tape: list[torch.Tensor] = []
    B, random = state.B, state.random

    @contextlib.contextmanager
    def again() -> Iterator[None]:
        with state.having(B=B, random=random, may_stop=True), repeated(tape):
            yield

    return torch.utils.checkpoint.checkpoint(
        function, *args, use_reentrant=False, context_fn=lambda: (noted(tape), again()), **kwargs
    )
