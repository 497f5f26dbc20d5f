# SPDX-License-Identifier: MIT
"""State of the code of models that a thread runs now, and the exceptions by which such code ends early."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from ..errors import InvalidArgument

if TYPE_CHECKING:
    from .model_tensor import ModelTensor

__all__ = ["NotFusable", "Refused", "RunsAnew", "Stray", "WritesShared", "outside", "state"]


class NotFusable(Exception):
    """Raised by code that cannot run for all models at once; the models of its module run one by one."""


class WritesShared(NotFusable):
    """Each model writes its own values into a tensor that all models share."""


class RunsAnew(NotFusable):
    """A part inside a checkpoint has to run in another way: the forward around the checkpoint starts anew.

    What the checkpoint has noted of the first attempt is not what it would run again.
    """


class Refused(InvalidArgument):
    """Code of a model that has no meaning in an array, nor with its models one by one."""


class Stray(Refused):
    """A parameter that belongs to no module of the array."""


class _State(threading.local):
    """State of the code of models that this thread runs now."""

    def __init__(self) -> None:
        self.B = 0  # models of the array whose forward runs; 0 outside
        self.wary = False  # gradients are wanted
        self.report: Any = None  # takes note of what the module whose code runs cannot fuse
        self.random: Any = None  # draws the random numbers of functions that belong to no layer
        self.making = 0  # 1: each model draws its own numbers, 2: and gets its own of tensors that are made
        self.drew = False  # whether code of the models drew numbers
        self.lent: Any = ()  # what the modules of one of several models hold for this call
        self.checkpoints = 0  # checkpointed parts whose first run is under way
        self.may_stop = False  # a checkpoint runs again, and ends where autograd has all tensors it wants
        self.checkpointed = False  # one of torch's checkpoints was called, by whatever code
        self.pending: list[ModelTensor] = []  # tensors not computed yet, see `Deferred`


state = _State()


class outside:
    """Context manager: run a layer's own code, which works on `[B, ...]`."""

    __slots__ = ("B",)

    def __enter__(self) -> None:
        self.B, state.B = state.B, 0

    def __exit__(self, *error: Any) -> None:
        state.B = self.B
