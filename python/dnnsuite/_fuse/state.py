# SPDX-License-Identifier: MIT
"""Stacking of the models' tensors, tied weights, and the memory that they take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from ..errors import InvalidArgument
from ..nn.array_module import GROUP
from ..nn.sharing import held_once, lent, shareable


@torch.no_grad()
def stacked_tensor(name: str, values: Sequence[Any], apart: bool = False) -> Any:
    """Stack the models' tensors, model i at index i of dimension 0; one that they share is copied once.

    Args:
        apart: each model gets its own all the same.

    Raises:
        InvalidArgument: if they differ in form, or share one that takes a gradient.
    """
    return _stacked(name, values, copied=True, apart=apart)


def _stacked(name: str, values: Sequence[Any], copied: bool, apart: bool = False) -> Any:
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


@torch.no_grad()
def stacked_parameter(name: str, values: Sequence[Any]) -> torch.nn.Parameter:
    """Stack the models' parameters, as `stacked_tensor` does tensors; a frozen one that they share is not copied."""
    return torch.nn.Parameter(_stacked(name, values, copied=False), requires_grad=values[0].requires_grad)


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
