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

    A parameter does not know its module, so all that Python knows of is asked what refers to it; that takes tens of
    milliseconds, and happens only where no parameter is an array's.
    """
    wanted = [p for p in parameters if isinstance(p, torch.nn.Parameter)]
    if not wanted or array_layers.has_any(parameters):
        return None
    with thawed():
        tables = [found for found in gc.get_referrers(*wanted) if type(found) is dict]
        holders = gc.get_referrers(*tables) if tables else []  # modules, or the dictionaries of their attributes
        attributes = [found for found in holders if _has_table(found, tables)]
        modules = [*holders, *(gc.get_referrers(*attributes) if attributes else ())]
    for module in modules:
        kind = type(module)
        of_torch = issubclass(kind, torch.nn.Module) and kind.__module__.startswith("torch.nn.modules.")
        if of_torch and kind.__module__ != torch.nn.ParameterList.__module__:
            return module
    return None


def _has_table(attributes: object, tables: Sequence[object]) -> bool:
    """True for the attributes of a module whose parameters are in one of `tables`."""
    return type(attributes) is dict and any(attributes.get("_parameters") is table for table in tables)
