# SPDX-License-Identifier: MIT
"""Trees of arguments: tensors in nested tuples, lists and dictionaries."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
tree_leaves: Callable[..., list[Any]] = _trees[1]
tree_map: Callable[..., Any] = _trees[2]
tree_unflatten: Callable[..., Any] = _trees[3]
