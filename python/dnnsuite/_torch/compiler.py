# SPDX-License-Identifier: MIT
"""Torch's compiler, told to leave functions alone without being imported."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sys
import types
from pathlib import Path
from typing import Any

import torch

from .lookup import get, note_lost

try:
    _has_dynamo = importlib.util.find_spec("torch._dynamo") is not None
except (ImportError, ValueError):
    _has_dynamo = False
if not _has_dynamo:
    note_lost("compiler")

DYNAMO = "torch._dynamo" if _has_dynamo else "torch"
"""The module that is loaded once torch.compile is in use; one that is always loaded where that cannot be known."""


def not_compiled(function: Any) -> Any:
    """Mark a function that torch.compile leaves as it is, without importing the compiler."""
    function._torchdynamo_disable = True
    return function


def made_by_dynamo(module: Any) -> bool:
    """True if `module` is what `torch.compile` makes of a module."""
    return any(kind.__module__.startswith("torch._dynamo") for kind in type(module).__mro__)


_operators = get("operators")


def is_operator(value: Any) -> bool:
    """True for an operator of `torch.ops`, and for what `torch.library.custom_op` returns."""
    return type(value).__module__ in ("torch._ops", "torch._library.custom_ops")


def code_of_operator(operator: Any) -> list[Any] | None:
    """Functions that a script has made an operator of; None if they cannot be had, none for torch's and compiled ones.

    Args:
        operator: operator of `torch.ops`, or what `torch.library.custom_op` returns.
    """
    if not _operators:
        return []
    made, kernels = _operators
    namespace, name = [*str(operator).split("."), ""][:2]
    definition = operator if hasattr(operator, "register_kernel") else made.get(f"{namespace}::{name}")
    if definition is not None:
        held = [one for value in vars(definition).values()
                for one in (value.values() if isinstance(value, dict) else [value])]  # fmt: skip
        return [one for one in held if isinstance(one, types.FunctionType)]
    of_torch = namespace in ("aten", "prims", "c10d", "inductor", "profiler", "quantized")
    return None if not of_torch and any(key.startswith(f"{namespace}/{name}/") for key in kernels) else []


def compiled_from(function: Any) -> Any:
    """Return the function that `torch.compile` made this one of; None for another."""
    file = getattr(getattr(function, "__code__", None), "co_filename", "")
    return getattr(function, "__wrapped__", None) if "torch/_dynamo" in file.replace("\\", "/") else None


def uncompiled(function: Any) -> Any:
    """Return a function of torch that does not import the compiler, two seconds, to be left alone by it.

    Where the compiler is there already, it is told. A function that is not torch's own, as a patch, stays as it is.
    """
    file = getattr(getattr(function, "__code__", None), "co_filename", "")
    if Path(torch.__file__).parent not in Path(file).parents or not hasattr(function, "__wrapped__"):
        return function

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        return (function if DYNAMO in sys.modules else function.__wrapped__)(*args, **kwargs)

    return called


def _method(name: str) -> Any:
    """Return a method of torch's optimizers, `uncompiled`, or the patch that has taken its place."""
    own = getattr(torch.optim.Optimizer, name)
    plain = uncompiled(own)

    @functools.wraps(own)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = getattr(torch.optim.Optimizer, name)
        return (plain if found is own else found)(self, *args, **kwargs)

    return method


class UncompiledOptimizer(torch.optim.Optimizer):
    """Base of torch's optimizers, for those whose making, state and step need no compiler."""

    add_param_group, zero_grad, state_dict, load_state_dict = map(
        _method, ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
    )


@functools.cache
def uncompiled_class(kind: type[torch.optim.Optimizer]) -> type[torch.optim.Optimizer]:
    """Return torch's optimizer `kind` as a class whose making and step do not import the compiler, two seconds.

    Its step is the same function of torch's, without gradients as there, and without the mark for the compiler.
    """
    plain = inspect.unwrap(kind.step)

    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        with torch.set_grad_enabled(self.defaults.get("differentiable", False)):
            return plain(self, *args, **kwargs)

    body = {"step": step, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind.__name__, (UncompiledOptimizer, kind), body)
