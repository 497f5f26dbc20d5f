# SPDX-License-Identifier: MIT
"""Random draws that can be made again, and activation checkpointing with them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.utils.checkpoint

from .._torch import backward_pass
from ..errors import InvalidArgument
from .model_tensor import state


class _Tapes(threading.local):
    """The draws that this thread notes for later, or makes again."""

    def __init__(self) -> None:
        self.noting: list[list[torch.Tensor]] = []
        self.repeating: Iterator[torch.Tensor] | None = None


_tapes = _Tapes()


def advance(rng: torch.Tensor) -> torch.Tensor:
    """(key, step) of each model for one draw from the streams `rng` `[B, 2]`; the next draw gets the next step.

    In a backward pass a forward is only run again by a checkpoint, and has to draw what it drew the first time.
    """
    if _tapes.repeating is not None:
        now = next(_tapes.repeating, None)
        if now is None:
            raise InvalidArgument(
                "a checkpointed function drew more random numbers the second time than the first"
            )
    elif backward_pass() != -1:
        raise InvalidArgument(
            "random numbers are drawn in a backward pass, where a checkpoint runs a forward again and needs those of "
            "the first time: use dnnsuite.nn.checkpoint in place of torch.utils.checkpoint.checkpoint"
        )
    else:
        now = rng.clone()
        rng[:, 1].add_(1)
    for tape in _tapes.noting:
        tape.append(now)
    return now


def seeds_of(rng: torch.Tensor) -> list[int]:
    """A seed for each (key, step) of `rng` `[B, 2]`, for draws that torch makes."""
    mixed = (key * 0x9E3779B97F4A7C15 + step * 0xD1B54A32D192ED03 + 1 for key, step in rng.tolist())
    return [seed & ((1 << 63) - 1) for seed in mixed]


def generators_of(rng: torch.Tensor, device: torch.device) -> list[torch.Generator]:
    """A generator for each (key, step) of `rng` `[B, 2]`."""
    return [torch.Generator(device).manual_seed(seed) for seed in seeds_of(rng)]


def checkpoint(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`function(*args, **kwargs)` without keeping its activations: the backward pass computes them again.

    As `torch.utils.checkpoint.checkpoint(..., use_reentrant=False)`, of which it is a call; dropout and other draws of
    an array's streams are the same the second time. Buffers are updated both times, as torch's checkpoint does. Not for
    use within another checkpoint.
    """
    tape: list[torch.Tensor] = []
    B, random = state.B, state.random

    @contextlib.contextmanager
    def first() -> Iterator[None]:
        _tapes.noting.append(tape)
        try:
            yield
        finally:
            _tapes.noting.remove(tape)

    @contextlib.contextmanager
    def again() -> Iterator[None]:
        before = _tapes.repeating, state.B, state.random
        _tapes.repeating, state.B, state.random = iter(tape), B, random
        try:
            yield
        finally:
            _tapes.repeating, state.B, state.random = before

    return torch.utils.checkpoint.checkpoint(
        function, *args, use_reentrant=False, context_fn=lambda: (first(), again()), **kwargs
    )
