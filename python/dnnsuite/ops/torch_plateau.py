# SPDX-License-Identifier: MIT
"""torch's ReduceLROnPlateau on an array's optimizer: one metric for all models, a metric per model is refused."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ..errors import InvalidArgument
from . import array_layers


def take_over() -> None:
    """Refuse metrics `[B]` in `torch.optim.lr_scheduler.ReduceLROnPlateau.step`, from now on."""
    kind: Any = torch.optim.lr_scheduler.ReduceLROnPlateau
    if not hasattr(kind.step, "looks_for_arrays"):
        kind.step = _looking(kind.step)


def _looking(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def step(self: Any, metrics: Any, *args: Any, **kwargs: Any) -> Any:
        count = _count(metrics)
        if count > 1 and array_layers.has_any(p for g in self.optimizer.param_groups for p in g["params"]):
            raise InvalidArgument(
                f"torch's ReduceLROnPlateau follows one metric, got {count}: for one per model use "
                "dnnsuite.optim.lr_scheduler.ReduceLROnPlateau with an optimizer of dnnsuite.optim, for one of all "
                "models give their mean"
            )
        return original(self, metrics, *args, **kwargs)

    step.__dict__["looks_for_arrays"] = True
    return step


def _count(metrics: Any) -> int:
    """Count the numbers of a list, a tuple, an array or a tensor."""
    if isinstance(metrics, torch.Tensor):
        return metrics.numel()
    return int(np.size(metrics)) if isinstance(metrics, (list, tuple, np.ndarray)) else 1
