# SPDX-License-Identifier: MIT
"""Seeds: what draws from torch, from NumPy or from Python's `random` draws the same after the same seed.

A model, a loss or a sample may draw from any of the three, so they are seeded together, and nowhere one of them alone.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from ._lazy import numpy as np
from ._lazy import torch


def seed_all(seed: int) -> None:
    """Seed Python's, NumPy's and torch's generators, those of torch's devices too."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


def _states() -> tuple[Any, ...]:
    return torch.get_rng_state(), random.getstate(), np.random.get_state()


def _put(states: tuple[Any, ...]) -> None:
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    np.random.set_state(states[2])


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed all generators inside, and put those of the CPU back after."""
    before = _states()
    with torch.random.fork_rng(devices=[]):
        if torch.cuda.is_available():
            torch.manual_seed(seed)
        else:  # without noting for other devices where it was called from, which takes a millisecond
            torch.default_generator.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            _put(before)


@contextlib.contextmanager
def watched(seed: int) -> Iterator[SimpleNamespace]:
    """Seed all generators inside as :func:`seeded` does; the value's `any` is True once the block has ended and drew
    from one of them."""
    found = SimpleNamespace(any=False)
    with seeded(seed):
        then = _states()
        try:
            yield found
        finally:
            found.any = not _same(then, _states())


def _same(then: tuple[Any, ...], now: tuple[Any, ...]) -> bool:
    (_, key, *rest), (_, other_key, *other_rest) = then[2], now[2]
    return then[0].equal(now[0]) and then[1] == now[1] and rest == other_rest and bool((key == other_key).all())


class Generators:
    """State of the process's generators, to go on later where a reader has left off."""

    def __init__(self, seed: int) -> None:
        with seeded(seed):
            self._held = _states()

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Lend the generators to the process inside the block."""
        before = _states()
        _put(self._held)
        try:
            yield
        finally:
            self._held = _states()
            _put(before)
