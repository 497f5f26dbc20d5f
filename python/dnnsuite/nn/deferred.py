# SPDX-License-Identifier: MIT
"""Outputs of layers that are not computed yet, and memory of results computed once for all models."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from .computed_once import runs_once, spread_all
from .forward_state import outside
from .sharing import is_frozen


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
