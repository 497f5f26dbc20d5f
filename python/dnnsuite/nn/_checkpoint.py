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
    """Call `function(*args, **kwargs)` without keeping its activations: the backward pass computes them again.

    As `torch.utils.checkpoint.checkpoint(..., use_reentrant=False)`, of which it is a call; dropout and other draws of
    an array's streams are the same the second time. Buffers are updated both times, as torch's checkpoint does. It is
    needed around an array and around layers of this package; in the forward of a model that is fused torch's own
    checkpoint, reentrant or not, does the same.
    """
    tape: list[torch.Tensor] = []
    B, random = state.B, state.random

    @contextlib.contextmanager
    def again() -> Iterator[None]:
        before = state.B, state.random, state.may_stop
        state.B, state.random, state.may_stop = B, random, True
        try:
            with repeated(tape):
                yield
        finally:
            state.B, state.random, state.may_stop = before

    return torch.utils.checkpoint.checkpoint(
        function, *args, use_reentrant=False, context_fn=lambda: (noted(tape), again()), **kwargs
    )
