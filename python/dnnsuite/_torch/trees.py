# SPDX-License-Identifier: MIT
"""Trees of arguments: tensors in nested tuples, lists and dictionaries."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .lookup import get

__all__ = ["tree_flatten", "tree_leaves", "tree_map", "tree_unflatten"]


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
