# SPDX-License-Identifier: MIT
"""Layers whose models are alike, on an input that all models share: computed once, by a layer of one model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .sharing import is_frozen, is_shared, spread

#: Name of an array's buffer, int64 `[B, 2]`, with the random streams of functions that belong to no layer.
FUNCTION_STREAM = "_function_stream"


def runs_once(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return True if every model computes the same from these arguments `[B, ...]`, now."""
    first = args[0] if args else None
    if not isinstance(first, torch.Tensor) or first.requires_grad or not is_shared(first):
        return False
    return all(map(_is_shared, (*args[1:], *kwargs.values()))) and layer.is_alike()


def _is_shared(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return is_frozen(value)
    if type(value) in (tuple, list):
        return all(map(_is_shared, value))
    return value is None or isinstance(value, (bool, int, float, str, torch.Size, torch.dtype))


def call_once(forward: Callable[..., Any], layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call `forward(layer, *args, **kwargs)`; for models that are alike once, with the result expanded."""
    if not runs_once(layer, args, kwargs):
        return forward(layer, *args, **kwargs)
    own = {name: first_of(value) for name, value in kwargs.items()}
    return spread_all(forward(layer.of_one(), *map(first_of, args), **own), layer.B)


def first_of(value: Any) -> Any:
    """Take the first model's part `[1, ...]` of tensors `[B, ...]`, alone or in a tuple or list."""
    if isinstance(value, torch.Tensor):
        return value[:1]
    return type(value)(map(first_of, value)) if type(value) in (tuple, list) else value


def spread_all(result: Any, B: int) -> Any:
    """Expand the tensors `[1, ...]` of a result to `[B, ...]`."""
    if isinstance(result, torch.Tensor):
        return spread(result, B)
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return type(result)(*(spread_all(part, B) for part in result))
    if isinstance(result, (tuple, list)):
        return type(result)([spread_all(part, B) for part in result])
    return result


def alike(module: torch.nn.Module) -> bool:
    """Return True if all models share the tensors that `module` and its parts hold, and its parts are alike."""
    names = _of_no_model(module)
    return (
        all(value is None or is_frozen(value) for value in module._parameters.values())
        and all(v is None or n in names or is_frozen(v) for n, v in module._buffers.items())
        and all(map(_is_alike, module.children()))
    )


def _of_no_model(module: torch.nn.Module) -> tuple[str, ...]:
    """Name buffers that are not a part of the models: they have no dimension for them, or are the array's."""
    return (*getattr(module, "shared_buffers", ()), FUNCTION_STREAM)


def _is_alike(part: Any) -> bool:
    return bool(part.is_alike()) if hasattr(part, "is_alike") else alike(part)


def layer_of_one(module: Any) -> Any:
    """Make a new layer of one model on the memory that the models of `module` share."""
    one = object.__new__(type(module))
    one.__dict__.update(module.__dict__)
    names = _of_no_model(module)
    one.__dict__["_parameters"] = {n: None if p is None else p[:1] for n, p in module._parameters.items()}
    one.__dict__["_buffers"] = {n: b if b is None or n in names else b[:1] for n, b in module._buffers.items()}
    one.__dict__["_modules"] = {
        n: p.of_one() if hasattr(p, "of_one") else layer_of_one(p) if p is not None and p._modules else p
        for n, p in module._modules.items()
    }
    return one
