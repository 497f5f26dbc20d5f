# SPDX-License-Identifier: MIT
"""Sparse buffers of models, such as the adjacency matrix of a graph: one that all models have is kept once.

torch has no sparse tensor `[B, ...]` for all layouts, nor views of a part of it. So an array holds the buffer in an
attribute of its module, as one model does: code of all models reads the one that they share. In a `state_dict` and in
models that are copied out of the array it is a buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..errors import InvalidArgument
from .comparison import same


def sparse_once(name: str, values: Sequence[Any]) -> torch.Tensor:
    """Copy the sparse tensor that all models have.

    Raises:
        InvalidArgument: for one that takes a gradient, or of which models have different ones.
    """
    first = values[0]
    if isinstance(first, torch.nn.Parameter):
        raise InvalidArgument(
            f"{name} is a parameter of layout {first.layout}, which an array cannot hold [B, ...]: make it a buffer, "
            "or hold its values in a dense parameter"
        )
    for index, value in enumerate(values):
        if not same(first, value):
            raise InvalidArgument(
                f"models 0 and {index} differ: {name} is a buffer of layout {first.layout}, which an array keeps once "
                "for all models: hold each model's own in a plain attribute (self.name = tensor)"
            )
    return first.detach().clone()


class SparseBuffers:
    """Mix-in of an array's modules: attributes `_fused_sparse` are buffers of each model."""

    _fused_sparse: frozenset[str]

    def _fused_take_sparse(self) -> None:
        """Make attributes of the sparse buffers."""
        held: dict[str, Any] = self._buffers  # type: ignore[attr-defined]
        found = {n: b for n, b in held.items() if b is not None and b.layout != torch.strided}
        for name in found:
            del held[name]
        vars(self).update(found, _fused_sparse=frozenset(found))

    def _saved(self) -> list[str]:
        return sorted(self._fused_sparse - self._non_persistent_buffers_set)  # type: ignore[attr-defined]

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Any:
        super()._apply(fn, recurse)  # type: ignore[misc]
        vars(self).update({name: fn(vars(self)[name]) for name in self._fused_sparse})
        return self

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)  # type: ignore[misc]
        destination.update({prefix + name: vars(self)[name] for name in self._saved()})

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        names = {prefix + name: name for name in self._saved()}
        for key, name in names.items():
            new = state_dict.get(key)
            if new is None:
                missing_keys += [key] * strict
            elif new.shape != vars(self)[name].shape or new.layout != vars(self)[name].layout:
                error_msgs.append(f"{key} is {list(new.shape)} of layout {new.layout}, which is another one here")
            else:
                vars(self)[name] = new.detach().clone()
        others = {key: value for key, value in state_dict.items() if key not in names} if names else state_dict
        super()._load_from_state_dict(  # type: ignore[misc]
            others, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


def give_back_sparse(module: Any, model: torch.nn.Module) -> None:
    """Make buffers of the attributes of `model`, a copy of an array's `module`, that were some."""
    for name in module._fused_sparse:
        model._buffers[name] = vars(model).pop(name)
