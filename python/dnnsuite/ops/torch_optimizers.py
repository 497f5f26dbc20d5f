# SPDX-License-Identifier: MIT
"""torch's optimizers on an array's parameters: those whose step is not one of single numbers are refused.

SGD, Adam and most others change each number by its own gradient, so they train every model by itself. LBFGS searches
along one line for all models, and Adafactor and Muon compute with rows and columns, one of which is B.
"""

from __future__ import annotations

from typing import Any

import torch

from .._torch import before_each_step
from ..errors import InvalidArgument
from . import array_layers

__all__ = ["take_over"]

_JOINT = tuple(
    getattr(torch.optim, name) for name in ("LBFGS", "Adafactor", "Muon") if hasattr(torch.optim, name)
)


def take_over() -> None:
    """Refuse steps of such optimizers that would couple models, from now on."""
    before_each_step(_check)


def _check(optimizer: Any, args: Any, kwargs: Any) -> None:
    if not isinstance(optimizer, _JOINT):
        return
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if any(id(p) in held for p in array_layers.parameters()):
        name = type(optimizer).__name__
        raise InvalidArgument(
            f"torch.optim.{name} would take one step for all models of an array together: use an optimizer of "
            f"dnnsuite.optim, or one {name} for each model of dnnsuite.unfuse(array)"
        )
