# SPDX-License-Identifier: MIT
"""Random generators that all threads of the process share: torch's, NumPy's and Python's."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from .._fuse import generator_loans


class SharedDraws:
    """Detection of steps that draw from a generator of the process, or lend torch's generator to a model.

    Such steps run in the caller's thread, shard after shard: in threads the order of draws would vary, and draws of the
    caller would mix with the models'.
    """

    def __init__(self) -> None:
        self.found = False
        self.known = False  # a step was watched
        self._before: Any = None

    def begin(self) -> None:
        """Note the generators before a step that runs alone."""
        self._before = None if self.found else _state()

    def end(self) -> None:
        """Compare the generators after it."""
        self.known = True
        self.found = self.found or _state() != self._before


def _state() -> tuple[Any, ...]:
    numpys: Any = np.random.get_state()
    return (
        torch.get_rng_state().tolist(),
        numpys[1].tolist(),
        numpys[2:],
        random.getstate(),
        generator_loans(),
    )
