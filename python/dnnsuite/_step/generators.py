# SPDX-License-Identifier: MIT
"""State that all threads of the process share: the random generators of torch, NumPy and Python, and values outside of
the array that a step changes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .._fuse import generator_loans


class SharedDraws:
    """Detection of steps that draw from a generator of the process, lend torch's generator to a model, or change
    a value outside of the array.

    Such steps run in the caller's thread, shard after shard: in threads the order of draws and of changes would vary,
    and those of the caller would mix with the models'.
    """

    def __init__(self, outside: Callable[[], Any] = lambda: None) -> None:
        """`outside` reads the values outside of the array that the steps can see."""
        self._outside = outside
        self.found = False
        self.known = False  # a step was watched
        self._before: Any = None

    def begin(self) -> None:
        """Note the generators before a step that runs alone."""
        self._before = None if self.found else (_state(), self._outside())

    def end(self) -> None:
        """Compare the generators after it."""
        self.known = True
        self.found = self.found or (_state(), self._outside()) != self._before


def _state() -> tuple[Any, ...]:
    numpys: Any = np.random.get_state()
    return (
        torch.get_rng_state().tolist(),
        numpys[1].tolist(),
        numpys[2:],
        random.getstate(),
        generator_loans(),
    )
