# SPDX-License-Identifier: MIT
"""Hyper-parameters as vectors with one value per model, what values are accepted, and parameters that are not: those
of a model that was not fused, which an optimizer of an array would take for those of many models."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import torch

from .._thawed import thawed
from ..errors import InvalidArgument
from ..ops import array_layers


def as_vector(value: Any, B: int, name: str, device: torch.device | None = None) -> torch.Tensor:
    """Convert `value`, a number or B of them, to a new float64 tensor `[B]`."""
    if isinstance(value, torch.Tensor) and value.is_complex():
        raise InvalidArgument(f"{name} is complex: give one real number, or one per model")
    try:
        vector = torch.as_tensor(value, dtype=torch.float64, device=device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidArgument(f"{name} is {value!r}: give one number, or one per model") from error
    if vector.dim() == 0:
        return vector.detach().repeat(B)
    if vector.shape != (B,):
        raise InvalidArgument(f"{name} has shape {list(vector.shape)} for {B} models: give one value, or one per model")
    return vector.detach().clone()


_BELOW_ONE = (0.0, 1.0, False)
_RANGES: dict[str, tuple[float, float, bool]] = {  # least, largest, whether the largest itself is accepted
    "beta1": _BELOW_ONE,
    "beta2": _BELOW_ONE,
    "rho": (0.0, 1.0, True),
    "etaminus": (0.0, 1.0, False),
    "etaplus": (1.0, float("inf"), False),
    "dampening": (float("-inf"), float("inf"), False),
    "alpha": (0.0, float("inf"), False),
    "t0": (float("-inf"), float("inf"), True),
    "beta2_decay": (float("-inf"), 0.0, True),
    "d": (1.0, float("inf"), False),
    "growth_rate": (1.0, float("inf"), True),
    "max_grad_norm": (0.0, float("inf"), True),
}


def check_range(name: str, vector: torch.Tensor) -> None:
    """Refuse values that torch refuses: negative ones, betas outside [0, 1), and the like."""
    low, high, closed = _RANGES.get(name, (0.0, float("inf"), False))
    right = (vector >= low) & ((vector <= high) if closed else (vector < high))
    if not bool(right.all()):
        index = int((~right).nonzero()[0])
        bounds = f"[{low:g}, {high:g}{']' if closed else ')'}"
        raise InvalidArgument(f"{name} of model {index} is {float(vector[index])!r}; it must lie in {bounds}")


def check_indices(indices: Sequence[int | None], B: int) -> list[int | None]:
    """Check indices of models and count them from 0; None stands for a fresh one."""
    checked: list[int | None] = []
    for index in indices:
        if index is not None and not (isinstance(index, int) and -B <= index < B):
            raise InvalidArgument(f"there is no model {index!r} among {B}: give 0 to {B - 1}, or None for a fresh one")
        checked.append(None if index is None else index % B)
    if not checked:
        raise InvalidArgument("an array has at least one model: indices is empty")
    return checked


def pick(vector: torch.Tensor, indices: Sequence[int | None]) -> torch.Tensor:
    """Choose slots: slot k of the result is slot indices[k]; a fresh one is zero."""
    places = torch.tensor([index or 0 for index in indices], device=vector.device)
    chosen = vector.index_select(0, places)
    for slot, index in enumerate(indices):
        if index is None:
            chosen[slot] = 0
    return chosen


def fresh_values(name: str, values: Any, count: int) -> list[float]:
    """Expand a keyword's value to the `count` fresh models: one number, or one each."""
    given = torch.as_tensor(values, dtype=torch.float64)
    if given.dim() == 0:
        return [float(given)] * count
    if given.shape != (count,):
        raise InvalidArgument(
            f"{name} has shape {list(given.shape)} for {count} fresh models: give one value, or one for each"
        )
    return [float(value) for value in given]


def fill_fresh(vector: torch.Tensor, indices: Sequence[int | None], values: Sequence[float]) -> torch.Tensor:
    """Write `values` in order into the slots whose index is None."""
    slots = [slot for slot, index in enumerate(indices) if index is None]
    for slot, value in zip(slots, values, strict=True):
        vector[slot] = value
    return vector


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
