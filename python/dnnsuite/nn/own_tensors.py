# SPDX-License-Identifier: MIT
"""Parameters and buffers of an array's modules, seen and changed by the code of one model, and calls of its layers from
there.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .._torch import hidden_from_function_modes
from ..ops.torch_on_arrays import register
from .forward_state import Deferred, Fresh, NotFusable, Refused, outside, state, unwatched
from .model_tensor import ModelTensor, expanded, mark_fresh, physical, wrap_all, wrap_parameter
from .sharing import FUNCTION_STREAM, SharedState, call_once


def ranks_of(module: torch.nn.Module) -> dict[str, int]:
    """Return the number of dimensions, B included, of each tensor that `module` holds itself."""
    held = (*module._parameters.items(), *module._buffers.items())
    return {name: value.dim() for name, value in held if value is not None}


def given_in_forward(value: torch.Tensor, rank: int | None) -> bool:
    """Return True for a tensor that a model's code has put in a parameter's place, like `functional_call`."""
    return type(value) is ModelTensor or (rank is not None and value.dim() != rank)


def seen_in_forward(module: torch.nn.Module, name: str, value: torch.Tensor, rank: int | None) -> Any:
    """Show a parameter or buffer of `module` as one model's code sees it."""
    if state.mode is not None:
        with hidden_from_function_modes():  # each look at the tensor would be a call of a function to it
            return _seen(module, name, value, rank)
    return _seen(module, name, value, rank)


def _seen(module: torch.nn.Module, name: str, value: torch.Tensor, rank: int | None) -> Any:
    if given_in_forward(value, rank):
        return value
    return wrap_parameter(value) if name in module._parameters else ModelTensor(value)


class GivenTensors:
    """Context manager: show tensors that a model's code put in the place of parameters as `[B, ...]`."""

    def __init__(self, found: list[tuple[dict[str, Any], str, torch.Tensor]], B: int) -> None:
        self.found, self.B = found, B

    @classmethod
    def of(cls, layer: torch.nn.Module, B: int) -> GivenTensors | None:
        """Find those of a layer of B models; None without any, which every call of a layer asks."""
        found = []
        for module in layer.modules() if layer._modules else (layer,):
            attributes = module.__dict__
            ranks = attributes.get("_ranks", {})
            for held in (attributes["_parameters"], attributes["_buffers"]):
                for name, value in held.items():
                    if value is None or (type(value) is not ModelTensor and value.dim() == ranks.get(name)):
                        continue  # most are; the rest of the calls is saved
                    if given_in_forward(value, ranks.get(name)):
                        found.append((held, name, value))
        return cls(found, B) if found else None

    def __enter__(self) -> None:
        for held, name, value in self.found:
            held[name] = expanded(value, self.B)

    def __exit__(self, *error: Any) -> None:
        for held, name, value in self.found:
            held[name] = value


class OwnTensors(SharedState):
    """Mix-in of an array's modules: one model's code that iterates over parameters sees one model's."""

    def __new__(cls, *_: Any, **__: Any) -> Any:
        layer = object.__new__(cls)  # not by a `__new__` of the user's, which is for a single model
        register(layer)  # type: ignore[arg-type]
        return layer

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        for name, value in super().named_parameters(*args, **kwargs):  # type: ignore[misc]
            yield name, wrap_parameter(value) if state.B else value

    def register_buffer(self, name: str, tensor: torch.Tensor | None, persistent: bool = True) -> None:
        """Register a buffer; one model's code gives that of one model, for example a cache that has to grow."""
        if state.B and tensor is not None:
            tensor = of_all_models(tensor, state.B)
        super().register_buffer(name, tensor, persistent)  # type: ignore[misc]

    def register_parameter(self, name: str, param: torch.nn.Parameter | None) -> None:
        """Register a parameter; one that a forward makes is refused."""
        if state.B and param is not None:
            refuse_new_parameter(self, name, param)  # type: ignore[arg-type]
        super().register_parameter(name, param)  # type: ignore[misc]

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        for name, value in super().named_buffers(*args, **kwargs):  # type: ignore[misc]
            if not state.B:
                yield name, value
            elif not name.endswith(FUNCTION_STREAM):
                yield name, ModelTensor(value)


def of_all_models(value: torch.Tensor, B: int) -> torch.Tensor:
    """Return a tensor of one model's code as that of all models `[B, ...]`, with its history: gradients may flow."""
    return physical(value) if type(value) is ModelTensor else value.unsqueeze(0).expand(B, *value.shape).clone()


def set_in_forward(module: torch.nn.Module, B: int, name: str, value: torch.Tensor) -> None:
    """Set an attribute of a module of B models from the code of one model.

    Raises:
        NotFusable: a parameter is replaced by another tensor.
        Refused: a parameter is made.
    """
    held = module.__dict__
    if isinstance(value, torch.nn.Parameter):
        refuse_new_parameter(module, name, value)
    if name in held["_parameters"]:
        if type(value) is not ModelTensor or value._value is not held["_parameters"][name]:
            raise NotFusable(f"it assigns the parameter {name} of a {type(module).__name__} in the forward")
        return  # of `weight /= 2`: done already
    if name in held["_buffers"]:
        # In its place and not into it: autograd may have kept the old one.
        held["_buffers"][name] = of_all_models(value, B)
    else:
        held[name] = value  # torch would register what looks like a parameter


def refuse_new_parameter(module: torch.nn.Module, name: str, value: torch.Tensor) -> None:
    """Raise Refused if one model's code makes a parameter: each model would need its own, and the optimizer would miss
    it."""
    known = type(value) is ModelTensor and isinstance(value._value, torch.nn.Parameter)
    if not known and name not in module._parameters:
        raise Refused(
            f"the forward of {type(module).__name__} makes the parameter {name}: make it in the constructor, or call "
            "each model once and fuse the models then"
        )


def refuse_deletion(module: torch.nn.Module, name: str) -> None:
    """Raise Refused if one model's code deletes a parameter of all models, which could not be restored."""
    if state.B and name in module._parameters:
        raise Refused(
            f"the forward deletes the parameter {name} of a {type(module).__name__}: leave it there and compute with "
            "another one by torch.nn.functional or torch.func.functional_call, or use torch.nn.utils.parametrize"
        )


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
