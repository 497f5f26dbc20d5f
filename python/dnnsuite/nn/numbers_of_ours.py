# SPDX-License-Identifier: MIT
"""Calls of torch's random functions that `ops.random_numbers` computes, read as its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

#: By method: its distribution, and names and usual values of its parameters.
_FILLS: dict[str, tuple[str, tuple[tuple[str, float], ...]]] = {
    "uniform_": ("uniform", (("from", 0.0), ("to", 1.0))),
    "normal_": ("normal", (("mean", 0.0), ("std", 1.0))),
    "bernoulli_": ("bernoulli", (("p", 0.5),)),
    "exponential_": ("exponential", (("lambd", 1.0),)),
}
_MADE = {"rand": "uniform", "randn": "normal"}
_MOST = 2**40  # of which 2^53 equally likely numbers make no two differ in frequency by more than 1 in 8000


def filled_by_ours(method: str, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[str, float, float] | None:
    """Return (distribution, first, second) of `Tensor.method(*args, **kwargs)`; None if torch's own has to do it, or to
    refuse it."""
    if method not in _FILLS:
        return None
    distribution, parameters = _FILLS[method]
    names = [name for name, _ in parameters]
    given = {**dict(parameters), **dict(zip(names, args, strict=False)), **kwargs}
    values = [given[name] for name in names]
    if len(args) > len(names) or len(given) > len(names) or not all(type(v) in (int, float) for v in values):
        return None
    first, second = float(values[0]), float(values[1]) if len(values) > 1 else 0.0
    return (distribution, first, second) if _is_valid(distribution, first, second) else None


def _is_valid(distribution: str, first: float, second: float) -> bool:
    """Return True for finite parameters that torch would take."""
    infinite = float("inf")
    if distribution == "uniform":
        return -infinite < first <= second < infinite and second - first < torch.finfo(torch.float32).max
    if distribution == "normal":
        return -infinite < first < infinite and 0.0 <= second < infinite
    return 0.0 <= first <= 1.0 if distribution == "bernoulli" else 0.0 < first < infinite


def made_by_ours(
    name: str, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Sequence[int], torch.dtype, str] | None:
    """Return (shape, dtype, distribution) of `torch.name(*args, **kwargs)` for one model, as of `filled_by_ours`."""
    if name not in _MADE or not kwargs.keys() <= {"size", "dtype", "device"} or bool(args) == ("size" in kwargs):
        return None
    sizes = args or (kwargs["size"],)
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    if not _are_sizes(sizes):
        return None
    dtype = kwargs.get("dtype") or torch.get_default_dtype()
    return (sizes, dtype, _MADE[name]) if isinstance(dtype, torch.dtype) else None


def integers_by_ours(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Sequence[int], int, int] | None:
    """Return (shape, low, high) of `torch.randint(*args, **kwargs)` for one model; None for other integers than int64,
    more than a float64 tells apart, and what torch refuses."""
    if not kwargs.keys() <= {"low", "high", "size", "dtype", "device"}:
        return None
    named = [kwargs[name] for name in ("low", "high", "size") if name in kwargs]
    *bounds, sizes = (*args, *named) if "size" in kwargs or not named else (*args[:-1], *named, *args[-1:])
    low, high = (0, *bounds)[-2:] if 1 <= len(bounds) <= 2 else (0, 0)
    fits = type(low) is type(high) is int and -_MOST <= low < high <= _MOST
    whole = kwargs.get("dtype") in (None, torch.int64)
    return (sizes, low, high) if fits and whole and isinstance(sizes, (tuple, list)) and _are_sizes(sizes) else None


def _are_sizes(sizes: Sequence[Any]) -> bool:
    return all(type(size) is int and size >= 0 for size in sizes)
