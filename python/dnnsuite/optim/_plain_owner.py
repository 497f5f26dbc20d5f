# SPDX-License-Identifier: MIT
"""Parameters of a model that was not fused, which an optimizer of an array would take for those of many models."""

from __future__ import annotations

import gc
from collections.abc import Sequence

import torch

from .._thawed import thawed
from ..ops import array_layers

__all__ = ["plain_owner"]


def plain_owner(parameters: Sequence[torch.Tensor]) -> torch.nn.Module | None:
    """Return a layer of torch's own that holds one of `parameters`, none of which is an array's.

    A parameter does not know its module, so all that Python knows of is looked through; that takes tens of
    milliseconds, and happens only where no parameter is an array's.
    """
    wanted = {id(p) for p in parameters if isinstance(p, torch.nn.Parameter)}
    if not wanted or array_layers.has_any(parameters):
        return None
    with thawed():
        objects = gc.get_objects()
    for found in objects:
        kind = type(found)
        if issubclass(kind, torch.nn.Module) and kind.__module__.startswith("torch.nn.modules."):
            held = vars(found).get("_parameters") or {}
            if kind.__module__ != torch.nn.ParameterList.__module__ and any(
                id(parameter) in wanted for parameter in held.values()
            ):
                return found
    return None
