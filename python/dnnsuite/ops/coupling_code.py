# SPDX-License-Identifier: MIT
"""Code of optimizers that computes one number, or a product of matrices, from a whole tensor."""

from __future__ import annotations

import dis
import functools
import inspect
import types
from collections.abc import Iterator
from typing import Any

from .._code import codes_of

__all__ = ["coupling_name"]

_REDUCTIONS = (
    *("all", "allclose", "amax", "amin", "aminmax", "any", "argmax", "argmin", "cosine_similarity"),
    *("count_nonzero", "cummax", "cumsum", "dist", "equal", "kthvalue", "logsumexp", "matrix_norm", "mean"),
    *("median", "nansum", "norm", "normalize", "prod", "quantile", "softmax", "sort", "std", "std_mean"),
    *("sum", "topk", "trace", "var", "var_mean", "vector_norm"),
)
_PRODUCTS = (
    *("addmm", "baddbmm", "bmm", "dot", "einsum", "inner", "kron", "matmul", "mm", "mv", "outer"),
    *("tensordot", "vdot"),
)
_DECOMPOSITIONS = (
    *("cholesky", "eigh", "inv", "inverse", "matrix_power", "parameters_to_vector", "pinv", "qr", "solve"),
    *("svd", "svd_lowrank"),
)
#: What tells a bias from a matrix, or a scale by the number of elements: an array's parameters have one dimension more.
_DIMENSIONS = ("dim", "ndim", "ndimension", "nelement", "numel")
#: Functions and methods whose result depends on more than one element of a parameter, or on its dimensions.
_COUPLING = frozenset((*_REDUCTIONS, *_PRODUCTS, *_DECOMPOSITIONS, *_DIMENSIONS))
#: Reductions as methods of a tensor; as functions, `torch.max(a, b)`, mostly of two tensors, element by element.
_COUPLING_METHODS = frozenset(("max", "min"))
_OF_LISTS = "_foreach_"  # begins the names of torch's functions for lists of tensors
_OTHERS = ("torch", "dnnsuite", "builtins")


@functools.lru_cache(maxsize=256)
def coupling_name(kind: type) -> str | None:
    """Name a function, in the code of a class and what it calls, whose result depends on a whole tensor; or None.

    Code of torch and of this package is not followed.
    """
    waiting = [f for base in kind.__mro__ if _is_followed(base) for f in _functions(vars(base).values())]
    seen: set[types.CodeType] = set()
    while waiting:
        function = inspect.unwrap(waiting.pop())
        for code in codes_of(function.__code__):
            if code in seen:
                continue
            seen.add(code)
            found = _named(code, function.__globals__)
            if found is not None:
                return found
            waiting += _functions(_called(code, function.__globals__))
    return None


def _is_followed(value: Any) -> bool:
    return (getattr(value, "__module__", None) or "builtins").partition(".")[0] not in _OTHERS


def _functions(values: Any) -> Iterator[types.FunctionType]:
    for value in values:
        value = getattr(value, "fget", None) or getattr(value, "__func__", None) or value
        if isinstance(value, types.FunctionType) and _is_followed(value):
            yield value


def _couples(name: Any) -> bool:
    return isinstance(name, str) and name.removeprefix(_OF_LISTS) in _COUPLING


def _named(code: types.CodeType, names: dict[str, Any]) -> str | None:
    """Name a coupling attribute, a coupling function imported by name, or `@`, in one code object."""
    of_module = False  # what the last instruction loaded
    for step in dis.get_instructions(code):
        if (
            step.opname.startswith("BINARY") and step.argrepr == "@"
        ) or step.opname == "BINARY_MATRIX_MULTIPLY":
            return "@"
        if step.opname in ("LOAD_ATTR", "LOAD_METHOD") and (
            _couples(step.argval) or (step.argval in _COUPLING_METHODS and not of_module)
        ):
            return str(step.argval)
        of_module = step.opname == "LOAD_GLOBAL" and isinstance(names.get(step.argval), types.ModuleType)
        if step.opname == "LOAD_GLOBAL" and step.argval in names:
            value = names[step.argval]
            name = getattr(value, "__name__", None)
            if _couples(name) and not _is_followed(value):
                return str(name)
    return None


def _called(code: types.CodeType, names: dict[str, Any]) -> Iterator[Any]:
    """Yield the values that globals of the code have, and what it may take from modules among them."""
    for name in code.co_names:
        value = names.get(name)
        if isinstance(value, types.ModuleType) and value.__name__.partition(".")[0] not in _OTHERS:
            yield from (vars(value).get(part) for part in code.co_names)
        else:
            yield value
