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

from . import array_layers

__all__ = ["take_over"]

#: Functions of torch.nn.init whose values depend on the shape.
_NAMES = (
    "dirac_",
    "eye_",
    "kaiming_normal_",
    "kaiming_uniform_",
    "orthogonal_",
    "sparse_",
    "xavier_normal_",
    "xavier_uniform_",
)


def take_over() -> None:
    """Let torch.nn.init's functions fill each model's part of an array's parameter; others as before."""
    for name in _NAMES:
        original = getattr(torch.nn.init, name, None)
        if original is not None and not hasattr(original, "each_model"):
            setattr(torch.nn.init, name, _each_model(original))


def _each_model(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def fill(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        of_one = (
            type(tensor) not in _PLAIN or tensor.dim() < 3
        )  # a weight of two dimensions has three in an array
        if of_one or not array_layers.is_parameter(tensor):
            return original(tensor, *args, **kwargs)
        for model in tensor.detach():
            original(model, *args, **kwargs)
        return tensor

    del fill.__wrapped__  # code that is followed ends here, as at torch's own function
    fill.__dict__["each_model"] = True
    return fill


_PLAIN = (torch.Tensor, torch.nn.Parameter)
