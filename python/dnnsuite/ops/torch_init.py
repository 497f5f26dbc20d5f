# SPDX-License-Identifier: MIT
"""torch's initial values of a parameter `[B, ...]`: those of each model by itself.

`xavier_uniform_` and its kind count the numbers that go in and out by a weight's shape, and `orthogonal_` takes its
dimension 0 for rows: B is none of those.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from .._torch import take_over_fan_counts
from . import array_layers

#: Functions of torch.nn.init whose values depend on the shape.
_NAMES = (
    "dirac_", "eye_", "kaiming_normal_", "kaiming_uniform_", "orthogonal_", "sparse_", "xavier_normal_",
    "xavier_uniform_",
)  # fmt: skip


def take_over() -> None:
    """Let torch.nn.init's functions fill each model's part of an array's parameter; others as before.

    Code that has imported one by name before keeps torch's: what it counts by the shape is then one model's, too.
    """
    take_over_fan_counts(lambda tensor: tensor[0] if _is_array_weight(tensor) else tensor)
    for name in _NAMES:
        original = getattr(torch.nn.init, name, None)
        if original is not None and not hasattr(original, "each_model"):
            setattr(torch.nn.init, name, _each_model(original))


def _each_model(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def fill(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not _is_array_weight(tensor):
            return original(tensor, *args, **kwargs)
        for model in tensor.detach():
            original(model, *args, **kwargs)
        return tensor

    del fill.__wrapped__  # code that is followed ends here, as at torch's own function
    fill.__dict__["each_model"] = True
    return fill


def _is_array_weight(tensor: torch.Tensor) -> bool:
    """Return True for a parameter of an array; a weight of two dimensions has three there."""
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    return plain and tensor.dim() > 2 and array_layers.is_parameter(tensor)
