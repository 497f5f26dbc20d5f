# SPDX-License-Identifier: MIT
"""Operators and tensors below autograd: dispatch modes, tensors without storage, operators without a public name; and
trees of arguments: tensors in nested tuples, lists and dictionaries."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .lookup import get, note_lost, one

dispatch_modes: Callable[[], int] = one("dispatch modes", lambda: 1)
"""The number of `TorchDispatchMode`s that look at the operators of this thread; 1 where that cannot be known."""

innermost_dispatch_mode: Callable[[], Any] = one("dispatch mode on top", lambda: None)
"""The `TorchDispatchMode` that sees an operator first; None if there is none, or it cannot be known."""

hidden_from_modes: Any = one("hidden from modes", contextlib.nullcontext)
"""Context manager: no `TorchDispatchMode` sees what runs inside."""

hidden_from_function_modes: Any = one("function modes", contextlib.nullcontext)
"""Context manager: no `TorchFunctionMode` sees what runs inside."""

innermost_function_mode: Callable[[], Any] = one("function mode on top", lambda: None)
"""The `TorchFunctionMode` that sees a call first; None if there is none, or it cannot be known."""


class _NoDispatchMode:
    """In place of `TorchDispatchMode`; never entered, for `no_capture` says why."""


TorchDispatchMode: Any = one("recorder", _NoDispatchMode)
StorageWeakRef: Any = one("storages", None)


def _meta_subclass(kind: Any, shape: Sequence[int], *, dtype: Any, device: Any) -> Any:
    """Return a tensor of class `kind` on the meta device; the class says itself which device it shows."""
    return torch.empty(tuple(shape), dtype=dtype, device="meta").as_subclass(kind)


wrapper_subclass: Callable[..., Any] = one("wrapper", _meta_subclass)
"""`wrapper_subclass(kind, shape, dtype=, device=)` makes a tensor of class `kind` without storage."""


weight_norm: Any = one("weight norm", None)
"""`weight_norm(v, g, dim)` gives rows of `v` the lengths `g`; None where there is none."""


def mark_parameter(tensor: Any) -> None:
    """Make `isinstance(tensor, torch.nn.Parameter)` true."""
    tensor._is_param = True


def _probe_parameter_mark() -> None:
    tensor = torch.empty(0, device="cpu")
    mark_parameter(tensor)
    if not isinstance(tensor, torch.nn.Parameter):
        note_lost("parameter mark")


_probe_parameter_mark()

_foreach = get("foreach")


def _norms(tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    return [torch.linalg.vector_norm(tensor) for tensor in tensors]


def _scale_(tensors: Sequence[torch.Tensor], factor: float) -> None:
    for tensor in tensors:
        tensor.mul_(factor)


def _copy_(tensors: Sequence[torch.Tensor], others: Sequence[torch.Tensor], non_blocking: bool = False) -> None:
    for tensor, other in zip(tensors, others, strict=True):
        tensor.copy_(other, non_blocking)


foreach_norm: Callable[..., Any] = _foreach[0] if _foreach else _norms
"""The 2-norm of each tensor in a list."""
foreach_mul_: Callable[..., Any] = _foreach[1] if _foreach else _scale_
"""Multiplies each tensor in a list by one number, in place."""
foreach_copy_: Callable[..., Any] = _foreach[2] if _foreach else _copy_
"""Copies each tensor of a second list into that of the first."""

assert_true: Any = one("assertion", None)
"""The operator `assert_true(truth, message)`, which fails unless `truth` is true; None where there is none."""

to_copy: Any = one("copy of another dtype", None)
"""The operator `to_copy(tensor, dtype=...)`, as torch's dispatcher has it; None where there is none."""

unsafe_view: Callable[..., Any] = one("unsafe view", torch.reshape)
"""`unsafe_view(x, shape)` of a fresh result that nothing else looks at."""

_gamma = get("gamma draws") or [None, None]
standard_gamma: Any = _gamma[0]
"""`standard_gamma(concentration)` draws from gamma distributions; None where there is none."""
standard_gamma_grad: Any = _gamma[1]
"""`standard_gamma_grad(concentration, drawn)`: derivative of what was drawn by its concentration."""
sample_dirichlet: Any = one("dirichlet draws", None)
"""`sample_dirichlet(concentration)` draws from Dirichlet distributions; None where there is none."""


@dataclass(frozen=True)
class _Tree:
    """The structure of nested tuples, lists and dictionaries; `kind` is None for a leaf."""

    kind: Any
    keys: tuple[Any, ...] = ()
    inner: tuple[_Tree, ...] = ()


def _parts(value: Any) -> tuple[tuple[Any, ...], list[Any]] | None:
    if type(value) in (dict, OrderedDict):
        return tuple(value), list(value.values())
    if type(value) in (tuple, list) or (isinstance(value, tuple) and hasattr(value, "_fields")):
        return (), list(value)
    return None


def _own_flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], _Tree]:
    parts = None if is_leaf is not None and is_leaf(tree) else _parts(tree)
    if parts is None:
        return [tree], _Tree(None)
    below = [_own_flatten(value, is_leaf) for value in parts[1]]
    leaves = [leaf for found, _ in below for leaf in found]
    return leaves, _Tree(type(tree), parts[0], tuple(inner for _, inner in below))


def _own_unflatten(leaves: Any, spec: _Tree) -> Any:
    return _built(iter(leaves), spec)


def _built(leaves: Any, spec: _Tree) -> Any:
    if spec.kind is None:
        return next(leaves)
    values = [_built(leaves, inner) for inner in spec.inner]
    if spec.kind in (dict, OrderedDict):
        return spec.kind(zip(spec.keys, values, strict=True))
    return spec.kind(*values) if hasattr(spec.kind, "_fields") else spec.kind(values)


def _own_leaves(tree: Any) -> list[Any]:
    return _own_flatten(tree)[0]


def _own_map(function: Callable[[Any], Any], tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    leaves, spec = _own_flatten(tree, is_leaf)
    return _own_unflatten(map(function, leaves), spec)


_trees = get("trees") or [_own_flatten, _own_leaves, _own_map, _own_unflatten]
tree_flatten: Callable[..., Any] = _trees[0]
tree_unflatten: Callable[..., Any] = _trees[3]

_LEAVES = frozenset({int, float, bool, str, type(None), slice, torch.Tensor, torch.dtype, torch.device})


def tree_leaves(tree: Any) -> list[Any]:
    """List the leaves of a tree, at a tenth of the cost of torch's function: it runs in every call of a layer."""
    found: list[Any] = []
    _collect(tree, found)
    return found


def _collect(tree: Any, found: list[Any]) -> None:
    kind = type(tree)
    if kind is tuple or kind is list:
        for part in tree:
            _collect(part, found)
    elif kind is dict:
        for part in tree.values():
            _collect(part, found)
    elif kind in _LEAVES or isinstance(tree, torch.Tensor):
        found.append(tree)
    else:
        found += _trees[1](tree)


def tree_map(function: Callable[[Any], Any], tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Call `function` with every leaf; return its results in a tree like this one."""
    if is_leaf is not None:
        return _trees[2](function, tree, is_leaf=is_leaf)
    kind = type(tree)
    if kind is tuple or kind is list:
        return kind([tree_map(function, part) for part in tree])
    if kind is dict:
        return {name: tree_map(function, part) for name, part in tree.items()}
    if kind in _LEAVES or isinstance(tree, torch.Tensor):
        return function(tree)
    return _trees[2](function, tree)
