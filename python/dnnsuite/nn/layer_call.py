# SPDX-License-Identifier: MIT
"""Call of a layer's `forward` on `[B, ...]` from an ordinary model's code."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

import torch

from .._torch import hidden_from_function_modes
from .computed_once import call_once
from .deferred import Deferred, Fresh
from .forward_state import outside, state, unwatched
from .model_tensor import ModelTensor, expanded, mark_fresh, wrap_all
from .own_tensors import GivenTensors


def _any_model_tensor(args: Any) -> bool:
    return any(type(a) is ModelTensor or (type(a) in (tuple, list) and _any_model_tensor(a)) for a in args)


def logical(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Make a layer's `forward` on `[B, ...]` callable from an ordinary model's code too."""

    @functools.wraps(forward)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs:
            args = _by_torchs_names(type(self), args, kwargs)
        if state.mode is None:
            return call_quietly(self, args, kwargs)
        if len(args) == 1 and not kwargs and self.activations and type(args[0]) is ModelTensor and state.B:
            x = args[0]._value
            if x is not None:
                with hidden_from_function_modes():  # nothing is computed, and looks at tensors are seen by none
                    if GivenTensors.of(self, self.B) is None:
                        return _deferred(self, x)
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
                return _deferred(self, x.value)
            if x.deferred is not None:
                joint = self.joined(x.deferred)
                if joint is not None:
                    return wrap_all(joint)
        return _called(forward, self, B, args, kwargs)

    return call


def _deferred(layer: Any, x: torch.Tensor) -> ModelTensor:
    """Defer the output of `layer` for x `[B, ...]`, as a model's code sees it."""
    deferred = Deferred.of(layer, x)
    result = ModelTensor(None, deferred)
    result.of_layer = True
    if deferred.shared:
        result.fresh = Fresh()
    return result


def shown_as_torchs(forward: Any, kind: type) -> Any:
    """Copy a `forward` of `logical` to show the arguments of `kind`'s of torch, and its own keywords."""
    own, theirs = inspect.signature(forward).parameters, inspect.signature(kind.forward)  # type: ignore[attr-defined]
    more = [p for p in own.values() if p.kind is p.KEYWORD_ONLY and p.name not in theirs.parameters]
    shown = types.FunctionType(
        forward.__code__, forward.__globals__, forward.__name__, forward.__defaults__, forward.__closure__
    )
    shown.__dict__.update(forward.__dict__)
    shown.__doc__, shown.__qualname__, shown.__module__ = (forward.__doc__, forward.__qualname__, forward.__module__)
    shown.__dict__["__signature__"] = theirs.replace(parameters=[*theirs.parameters.values(), *more])
    return shown


@functools.lru_cache(maxsize=512)
def _names(kind: type) -> tuple[list[str], Any]:
    """List the names of torch's arguments, and those of the layer's own `forward`."""
    torchs = getattr(getattr(kind, "torch_class", None), "forward", None)
    own: Any = kind.forward  # type: ignore[attr-defined]
    named = list(inspect.signature(torchs).parameters)[1:] if torchs else []
    return named, inspect.signature(getattr(own, "__wrapped__", own)).parameters.keys()


def _by_torchs_names(kind: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Take what is given by torch's names, and has others here, out of `kwargs` to the end of `args`."""
    named, own = _names(kind)
    for name in named[len(args) :]:
        if name in own or name not in kwargs:
            break
        args = (*args, kwargs.pop(name))
    return args


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
