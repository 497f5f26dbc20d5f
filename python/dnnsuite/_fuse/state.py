# SPDX-License-Identifier: MIT
"""Stacking of the models' tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..errors import InvalidArgument
from ..nn.array_module import GROUP
from ..nn.sharing import lent, shareable


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
                raise InvalidArgument(
                    f"models 0 and {index} differ: {name}{which} is {mine} and {other}{advice}"
                )
    if shareable(name, values) and not apart:
        one = first.detach()
        return lent(one.clone() if copied else one, len(values))
    return torch.stack([value.detach() for value in values])


@torch.no_grad()
def stacked_parameter(name: str, values: Sequence[Any]) -> torch.nn.Parameter:
    """Stack the models' parameters, as `stacked_tensor` does tensors; a frozen one that they share is not copied."""
    return torch.nn.Parameter(_stacked(name, values, copied=False), requires_grad=values[0].requires_grad)
