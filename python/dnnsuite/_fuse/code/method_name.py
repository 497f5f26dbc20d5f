# SPDX-License-Identifier: MIT
"""Calls of a model's other methods, such as a GAN's losses or `training_step`, on the way that `forward` takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..._torch import caches_parametrizations, own_parametrizations


class MethodName(str):
    """Name of a method to call in place of `forward`: the first argument of a call of a model."""

    __slots__ = ()


def method_named(args: Sequence[Any]) -> str:
    """Return the name of the method that a call with `args` means; empty for `forward`."""
    return args[0] if args and type(args[0]) is MethodName else ""


def call_model(model: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call a plain model, or the method of it that the first argument names."""
    if caches_parametrizations():
        with own_parametrizations():
            return _called(model, args, kwargs)
    return _called(model, args, kwargs)


def _called(model: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    name = method_named(args)
    return getattr(model, name)(*args[1:], **kwargs) if name else model(*args, **kwargs)
