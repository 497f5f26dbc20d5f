# SPDX-License-Identifier: MIT
"""Tied weights: parameters that several layers of a model share."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..errors import InvalidArgument


def tie(target: torch.nn.Module, models: Sequence[torch.nn.Module]) -> None:
    """Make parameters of `target` one tensor where they are one in the models.

    Raises:
        InvalidArgument: if the models tie different parameters.
    """
    groups = [_tied(model) for model in models]
    buffers = [_tied(model, "named_buffers") for model in models]
    for index, group in enumerate(zip(groups, buffers, strict=True)):
        if group != (groups[0], buffers[0]):
            raise InvalidArgument(
                f"models 0 and {index} differ: they share other parameters or buffers between layers"
            )
    for names in groups[0]:
        owner = _holder(target, names[0])
        for name in names[1:]:
            place, leaf = _holder(target, name)
            place._parameters[leaf] = owner[0]._parameters[owner[1]]


def _tied(model: torch.nn.Module, kind: str = "named_parameters") -> list[list[str]]:
    """List the names of each parameter or buffer that has more than one."""
    names: dict[int, list[str]] = {}
    for name, parameter in getattr(model, kind)(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [group for group in names.values() if len(group) > 1]


def _holder(root: torch.nn.Module, name: str) -> tuple[torch.nn.Module, str]:
    path, _, leaf = name.rpartition(".")
    return root.get_submodule(path), leaf
