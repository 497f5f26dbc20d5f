# SPDX-License-Identifier: MIT
"""Stacking of the models' tensors, tied weights, and the memory that they take; sparse buffers, which are kept once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from ..errors import InvalidArgument
from ..nn.array_module import GROUP
from ..nn.sharing import held_once, lent, shareable
from .comparison import same


@torch.no_grad()
def stacked_tensor(name: str, values: Sequence[Any], apart: bool = False, copied: bool = True) -> Any:
    """Stack the models' tensors, model i at index i of dimension 0; one that they share is copied once.

    Args:
        apart: each model gets its own all the same.
        copied: False leaves one that they share in its memory.

    Raises:
        InvalidArgument: if they differ in form, or share one that takes a gradient.
    """
    first = values[0]
    for index, value in enumerate(values):
        for what in ("shape", "dtype", "device", "requires_grad"):
            mine, other = getattr(first, what, None), getattr(value, what, None)
            if mine != other:
                mine, other = (list(v) if what == "shape" and v is not None else v for v in (mine, other))
                which = "" if what == "shape" else f".{what}"
                advice = GROUP if what == "shape" else ""
                raise InvalidArgument(f"models 0 and {index} differ: {name}{which} is {mine} and {other}{advice}")
    if shareable(name, values) and not apart:
        one = first.detach()
        return lent(one.clone() if copied else one, len(values))
    return torch.stack([value.detach() for value in values])


def stacked_parameter(name: str, values: Sequence[Any]) -> torch.nn.Parameter:
    """Stack the models' parameters, as `stacked_tensor` does tensors; a frozen one that they share is not copied."""
    return torch.nn.Parameter(stacked_tensor(name, values, copied=False), requires_grad=values[0].requires_grad)


def tie(target: torch.nn.Module, models: Sequence[torch.nn.Module]) -> None:
    """Make parameters and buffers of `target` one tensor where they are one in the models.

    Raises:
        InvalidArgument: if the models tie different parameters or buffers.
    """
    groups = [_tied(model) for model in models]
    for index, group in enumerate(groups):
        if group != groups[0]:
            raise InvalidArgument(f"models 0 and {index} differ: they share other parameters or buffers between layers")
    for kind, each in groups[0].items():
        for first, *names in each:
            owner, name = _holder(target, first)
            tensor = getattr(owner, kind).get(name)
            for place, leaf in (_holder(target, one) for one in names if tensor is not None):
                if leaf in getattr(place, kind):
                    getattr(place, kind)[leaf] = tensor


def _tied(model: torch.nn.Module) -> dict[str, list[list[str]]]:
    """List the names of each parameter or buffer that has more than one, by the dictionary that holds it."""
    found = {}
    for kind in ("parameters", "buffers"):
        names: dict[int, list[str]] = {}
        for name, tensor in getattr(model, f"named_{kind}")(remove_duplicate=False):
            names.setdefault(id(tensor), []).append(name)
        found[f"_{kind}"] = [group for group in names.values() if len(group) > 1]
    return found


def _holder(root: torch.nn.Module, name: str) -> tuple[torch.nn.Module, str]:
    path, _, leaf = name.rpartition(".")
    return root.get_submodule(path), leaf


class StateBytes(NamedTuple):
    """Bytes of parameters and buffers.

    `shared` bytes are held once, whatever the number of models, and `per_model` bytes by each model: B models take
    `shared + B * per_model`. Gradients and optimizer state come on top, for `trained_per_model` bytes of each model.
    """

    shared: int
    per_model: int
    trained_per_model: int


def state_bytes(array: torch.nn.Module) -> StateBytes:
    """Count the bytes of the parameters and buffers of an array; tied ones count once."""
    tensors = {id(x): x for x in (*array.parameters(), *array.buffers()) if x.dim() > 0 and len(x) > 0}
    shared = sum(x[0].nbytes for x in tensors.values() if held_once(x))
    own = [x for x in tensors.values() if not held_once(x)]
    trained = sum(x[0].nbytes for x in own if x.requires_grad)
    return StateBytes(shared, sum(x[0].nbytes for x in own), trained)


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
