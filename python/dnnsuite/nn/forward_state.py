# SPDX-License-Identifier: MIT
"""Per-thread state of models' code that runs in an array, and the exceptions that end it early."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .._torch import innermost_function_mode
from ..errors import InvalidArgument

if TYPE_CHECKING:
    from .model_tensor import ModelTensor


class NotFusable(Exception):
    """Raised by code that cannot run for all models at once; the models of its module run one by one."""


class WritesShared(NotFusable):
    """Raised for a write of each model's values into a tensor that all models share."""


class RunsAnew(NotFusable):
    """Raised inside a checkpoint for a part that must run another way: the forward around the checkpoint starts again.

    The checkpoint's notes of the first attempt would not match its second run.
    """


class Refused(InvalidArgument):
    """Raised for a model's code that has no meaning in an array, neither fused nor model by model."""


class Stray(Refused):
    """Raised for a parameter that belongs to no module of the array."""


class _State(threading.local):
    """State of the models' code that this thread runs."""

    def __init__(self) -> None:
        self.B = 0  # models of the array whose forward runs; 0 outside
        self.wary = False  # gradients are wanted
        self.report: Any = None  # takes note of what the module whose code runs cannot fuse
        self.random: Any = None  # draws the random numbers of functions that belong to no layer
        self.making = 0  # 1: each model draws its own numbers, 2: and gets its own of tensors that are made
        self.mode: Any = None  # the function mode that does so, where it is on
        self.drew = False  # whether code of the models drew numbers
        self.drew_alone = False  # whether models that ran one by one drew from torch's generator
        self.reached: dict[Any, Any] | None = None  # code that the calls of the step under way can reach, by its roots
        self.turns = 0  # times that code began anew, to run another way, or was tried: no later step does the same
        self.keeping: Any = None  # the state that a module further out has kept, to begin anew
        self.checkpoints = 0  # checkpointed parts whose first run is under way
        self.may_stop = False  # a checkpoint runs again, and ends where autograd has all tensors it wants
        self.checkpointed = False  # one of torch's checkpoints was called, by whatever code
        self.pending: list[ModelTensor] = []  # tensors not computed yet, see `Deferred`
        self.written: list[tuple[Any, str, Any]] = []  # (module, attribute, value before) of what code has set

    @contextmanager
    def having(self, **values: Any) -> Iterator[None]:
        """Context manager: these attributes have other values inside."""
        before = {name: getattr(self, name) for name in values}
        vars(self).update(values)
        try:
            yield
        finally:
            vars(self).update(before)


state = _State()


class unwatched:
    """Context manager: `state.mode` is off.

    It has nothing to do in our own code, and costs half a microsecond in every torch function.
    """

    __slots__ = ("mode",)

    def __enter__(self) -> None:
        self.mode = state.mode
        if self.mode is None:
            return
        if innermost_function_mode() is self.mode:
            self.mode.__exit__(None, None, None)
            state.mode = None
        else:  # torch has put it aside already, or the model's code has entered another
            self.mode = None

    def __exit__(self, *error: Any) -> None:
        if self.mode is not None:
            self.mode.__enter__()
            state.mode = self.mode


class outside(unwatched):
    """Context manager: run a layer's own code, on `[B, ...]` tensors."""

    __slots__ = ("B",)

    def __enter__(self) -> None:
        self.B, state.B = state.B, 0
        if state.mode is None:
            self.mode = None
        else:
            super().__enter__()

    def __exit__(self, *error: Any) -> None:
        if self.mode is not None:
            super().__exit__(*error)
        state.B = self.B
