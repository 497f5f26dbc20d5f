# SPDX-License-Identifier: MIT
"""Per-thread state of models' code that runs in an array, the exceptions that end it early, and outputs of layers that
are not computed yet."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from .._torch import hidden_from_function_modes, innermost_function_mode
from ..errors import InvalidArgument
from .sharing import is_frozen, is_shared, own, runs_once, spread_all

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


class Deferred:
    """A layer's output not yet computed, so that a following add or activation joins its kernel (`layer.activated`).

    The output is `activation(layer(x) + residual)`, the activation as (name, slope), of `shape` `[B, ...]`. If all
    models compute the same, `shared` is True, and layer and inputs are those of one model.
    """

    __slots__ = ("activation", "device", "dtype", "grad", "layer", "residual", "shape", "shared", "taken", "x")

    def __init__(
        self,
        layer: Any,
        x: torch.Tensor,
        shape: torch.Size,
        residual: torch.Tensor | None = None,
        activation: tuple[str, float] | None = None,
        shared: bool = False,
    ) -> None:
        self.layer, self.x, self.shape, self.residual = layer, x, shape, residual
        self.activation, self.shared = activation, shared
        self.dtype, self.device, self.grad = x.dtype, x.device, torch.is_grad_enabled()
        self.taken = False  # computed already, with more: what this would change in the layer is changed

    @classmethod
    def of(cls, layer: Any, x: torch.Tensor) -> Deferred:
        """Defer the output of `layer` for `x` `[B, ...]`."""
        if runs_once(layer, (x,), {}):
            return cls(layer.of_one(), x[:1], layer.shape_of_result(x), shared=True)
        return cls(layer, x, layer.shape_of_result(x))

    def plus(self, residual: torch.Tensor) -> Deferred | None:
        """Defer the sum with `residual` `[B, ...]`; None if this output is shared and the residual is per model."""
        if self.shared:
            if not is_frozen(residual):
                return None
            residual = residual[:1]
        return Deferred(self.layer, self.x, self.shape, residual, shared=self.shared)

    def through(self, activation: tuple[str, float]) -> Deferred:
        """Defer the result of `activation`."""
        return Deferred(self.layer, self.x, self.shape, self.residual, activation, self.shared)

    def given(self, result: Any) -> Any:
        """Expand a result of the layer to all models."""
        return spread_all(result, self.shape[0]) if self.shared else result

    def compute(self) -> Any:
        """Compute the output now."""
        return self.given(self._computed())

    def _computed(self) -> Any:
        if self.grad == torch.is_grad_enabled():
            return self._computed_now()
        with torch.set_grad_enabled(self.grad):
            return self._computed_now()

    def _computed_now(self) -> Any:
        with outside():
            if self.taken:
                result = self.layer.repeated(self.x)
                result = result if self.residual is None else result + self.residual
                return result if self.activation is None else self.layer.activate(result, *self.activation)
            if self.residual is None and self.activation is None:
                return type(self.layer).forward(self.layer, self.x)  # not one that was set on it
            more = {} if self.residual is None else {"residual": self.residual}
            return self.layer.activated(self.x, *(self.activation or ("none",)), **more)


class Fresh:
    """Memory of a result that was computed once for all models; `tensors` counts its views."""

    __slots__ = ("tensors",)

    def __init__(self) -> None:
        self.tensors = 1


class Half(NamedTuple):
    """First (`place` 0) or second half of `whole` `[B, *]` along its `dim`; `value` is the half itself."""

    whole: torch.Tensor
    dim: int
    place: int
    value: torch.Tensor


can_follow_variables = hidden_from_function_modes is not contextlib.nullcontext
"""False where torch does not tell what code has asked of the tensor that it sees."""


class Alone:
    """Layer of a `Deferred` that is a function of its input, and that no sum, activation or maximum joins."""

    activations: frozenset[str] = frozenset()
    adds_residual = False

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._function(x)

    repeated = forward

    def before_maximum(self, x: torch.Tensor) -> frozenset[str]:
        return frozenset()


class Variable(Alone):
    """Layer of a `Deferred` that detaches its input, and lets it take a gradient if code asked.

    torch sets `requires_grad` on what code sees after `detach` has returned it, and tells nobody: `seen` is looked at
    when its value is needed.
    """

    def __init__(self) -> None:
        self.seen: Any = None

    def forward(self, source: Any) -> torch.Tensor:
        x: torch.Tensor = source.value
        with hidden_from_function_modes():
            asked = self.seen.requires_grad
        self.seen = None
        if not asked:
            return x.detach()
        return (own(x) if is_shared(x) else x).detach().requires_grad_()
