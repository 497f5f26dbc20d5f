# SPDX-License-Identifier: MIT
"""Call of a layer's `forward` on `[B, ...]` from an ordinary model's code."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .computed_once import call_once
from .deferred import Deferred, Fresh
from .forward_state import outside, state, unwatched
from .model_tensor import ModelTensor, expanded, mark_fresh, wrap_all
from .own_tensors import GivenTensors

__all__ = ["logical"]


def _any_model_tensor(args: Any) -> bool:
    return any(type(a) is ModelTensor or (type(a) in (tuple, list) and _any_model_tensor(a)) for a in args)


def logical(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Make a layer's `forward` on `[B, ...]` callable from an ordinary model's code too."""

    @functools.wraps(forward)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if state.mode is None:
            return call_quietly(self, args, kwargs)
        with unwatched():
            return call_quietly(self, args, kwargs)

    def call_quietly(self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not state.B and not _any_model_tensor(args):
            return call_once(forward, self, args, kwargs)
        B = self.B
        given = GivenTensors.of(self, B)
        if given is not None:
            with given:
                return _called(forward, self, B, args, kwargs)
        if len(args) == 1 and not kwargs and type(args[0]) is ModelTensor:
            x = args[0]
            if self.activations and state.B:
                deferred = Deferred.of(self, x.value)
                result = ModelTensor(None, deferred)
                result.of_layer = True
                if deferred.shared:
                    result.fresh = Fresh()
                return result
            if x.deferred is not None:
                joint = self.joined(x.deferred)
                if joint is not None:
                    return wrap_all(joint)
        return _called(forward, self, B, args, kwargs)

    return call


def _called(forward: Callable[..., Any], layer: Any, B: int, args: Any, kwargs: dict[str, Any]) -> Any:
    own = tuple(expanded(a, B) for a in args)
    kwargs = {name: expanded(a, B) for name, a in kwargs.items()}
    with outside():
        result = wrap_all(call_once(forward, layer, own, kwargs))
    if type(result) is ModelTensor:
        result.of_layer = True
        mark_fresh(result, args)
        if getattr(layer, "inplace", False) and args and type(args[0]) is ModelTensor:
            args[0].become(result.value)
            return args[0]
    return result
