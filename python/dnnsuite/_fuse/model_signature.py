# SPDX-License-Identifier: MIT
"""Signature of an array's `forward`: that of its models, for code that looks up the names of a model's arguments."""

from __future__ import annotations

import functools
import inspect
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch

from .code.fused_attributes import bare_class

_SELF = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)


class ForwardOfModels:
    """Method of an array that `inspect.signature` shows with the arguments of its models' `forward`.

    transformers' `Trainer` leaves out of a batch what is no argument of its model.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self.__doc__ = function, function.__doc__
        self._shown: dict[int, tuple[Any, Callable[..., Any]]] = {}  # by id of the models' function

    def __get__(self, array: Any, owner: Any = None) -> Callable[..., Any]:
        if array is None:
            return self._function
        root = array.__dict__.get("_root")
        if root is None or torch.compiler.is_compiling():
            return functools.partial(self._function, array)  # which torch.compile looks into
        return types.MethodType(self._as_in(root), array)

    def _as_in(self, root: torch.nn.Module) -> Callable[..., Any]:
        """Copy the method, with the signature that `forward` has in the models."""
        own = root.__dict__.get("forward")
        models: Any = bare_class(root).forward if own is None else own
        found = self._shown.get(id(models))
        if found is None or found[0]() is not models:
            try:
                shown = self._copy(inspect.signature(models), bound=own is not None)
                found = weakref.ref(models, functools.partial(self._forget, id(models))), shown
            except (TypeError, ValueError):  # code that Python cannot look into
                return self._function
            self._shown[id(models)] = found
        return found[1]

    def _forget(self, models: int, gone: Any) -> None:
        self._shown.pop(models, None)

    def _copy(self, signature: inspect.Signature, bound: bool) -> Any:
        function: Any = self._function
        if bound:
            signature = signature.replace(parameters=[_SELF, *signature.parameters.values()])
        copy: Any = types.FunctionType(
            function.__code__, function.__globals__, function.__name__, function.__defaults__
        )
        copy.__doc__, copy.__qualname__, copy.__module__ = (
            function.__doc__,
            function.__qualname__,
            function.__module__,
        )
        copy.__signature__ = signature
        return copy
