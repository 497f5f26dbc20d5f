# SPDX-License-Identifier: MIT
"""Choices of a StepRunner that are measured once for an array: their keys, and the start of a trial."""

from __future__ import annotations

from typing import Any

import torch

from .. import _tune as tune
from ..nn.sharing import is_shared
from .capture import guards
from .layout_widths import LayoutWidths
from .shard_width_search import WidthTrial

__all__ = ["loop_key", "shares_products", "width_trial", "widths_by_layout"]

_CAPTURE_STEPS = 4  # of a new shard until it is replayed for the second time
_LIGHT_BYTES = 2**22  # of parameters: less is mostly overhead, and its activations are small


def width_trial(array: torch.nn.Module, B: int, threads: int, capture: bool) -> WidthTrial:
    """Begin the search for the number of models per shard."""
    shapes = [list(p.shape[1:]) for p in array.parameters()]
    how = "width of captured steps" if capture else "width of steps"
    key = tune.key(how, type(array).__name__, shapes, B, threads)
    light = sum(p.numel() * p.element_size() for p in array.parameters()) <= _LIGHT_BYTES
    return WidthTrial(B, threads, key, _CAPTURE_STEPS if capture else 1, light)


def shares_products(array: torch.nn.Module) -> bool:
    """Return True for an array that shares state other than filters. A convolution of another number of images may
    round differently, so with shared filters the width must not depend on timings."""
    shared = [p for p in array.parameters() if is_shared(p)]
    return bool(shared) and all(p.dim() <= 3 for p in shared)


def widths_by_layout(array: torch.nn.Module, B: int, threads: int, capture: bool) -> LayoutWidths:
    """Begin this search for an array that shares state, one for each layout of a batch."""
    return LayoutWidths(B, threads, (*_described(array), capture), _CAPTURE_STEPS if capture else 1)


def loop_key(array: torch.nn.Module, B: int, threads: int, capture: bool) -> str:
    """Key of the choice between a step for all models and a loop over them."""
    return tune.key("loop of steps", *_described(array), capture, B, threads)


def _described(array: torch.nn.Module) -> tuple[Any, ...]:
    """List the modules of an array and the shapes of its parameters."""
    modules = [type(module).__qualname__ for _, module in guards.modules_of(array)]
    return modules, [list(p.shape[1:]) for p in array.parameters()]
