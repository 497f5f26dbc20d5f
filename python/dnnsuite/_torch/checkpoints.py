# SPDX-License-Identifier: MIT
"""Torch's activation checkpoints, put in place of which a block's own are called."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.utils.checkpoint

from .lookup import get
from .names import NAMES

__all__ = ["Checkpoints"]

_checkpoint = get("checkpoint")


class Checkpoints:
    """Context manager: inside, torch's checkpoints (of all threads) are made by `without_reentrant` and `reentrant`.

    Both take what torch's own take and get it as their first argument: the generator function
    `(function, *options, *args)`, and `apply(function, preserve_rng_state, *args)` of the autograd.Function. torch's
    own are back in place when the last such block has ended.
    """

    def __init__(self, without_reentrant: Callable[..., Any], reentrant: Callable[..., Any]) -> None:
        self._lock, self._users = threading.Lock(), 0
        found, self._own = _checkpoint, dict[str, Any]()
        if found:
            generator, function = (name.rpartition(".")[2] for name in NAMES["checkpoint"].names)
            self._own = {generator: found[0], function: found[1]}
            self._ours = {
                generator: partial(without_reentrant, found[0]),
                function: SimpleNamespace(apply=partial(reentrant, found[1].apply)),
            }

    def __enter__(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1 and self._own:
                vars(torch.utils.checkpoint).update(self._ours)

    def __exit__(self, *error: Any) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                vars(torch.utils.checkpoint).update(self._own)
