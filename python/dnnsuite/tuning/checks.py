# SPDX-License-Identifier: MIT
"""Checks of a sweep's arguments: each refuses a value with a sentence that names it."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..errors import InvalidArgument

__all__ = ["at_least_1", "check_evaluate", "check_factory", "checked_part", "sign_of"]

_HIGHER = (
    "acc",
    "f1",
    "auc",
    "auroc",
    "precision",
    "recall",
    "score",
    "r2",
    "bleu",
    "top1",
    "top5",
    "iou",
    "dice",
)
_LOWER = ("loss", "error", "mse", "mae", "nll", "perplexity")  # though one of the others is in the name, too


def sign_of(metric: str | None, goal: str | None) -> float:
    """1.0 where lower is better, -1.0 where higher is: by `goal`, else by the metric's name.

    >>> from dnnsuite.tuning.checks import sign_of
    >>> sign_of("val_acc", None), sign_of("accumulated_loss", None)
    (-1.0, 1.0)
    """
    if goal not in (None, "min", "max"):
        raise InvalidArgument(f"goal is {goal!r}: give min or max")
    if goal is None:
        goal = "max" if metric and _is_better_high(metric.lower()) else "min"
    return 1.0 if goal == "min" else -1.0


def _is_better_high(metric: str) -> bool:
    return any(word in metric for word in _HIGHER) and not any(word in metric for word in _LOWER)


def at_least_1(name: str, value: int | None) -> int | None:
    """`value`, if it is a whole number from 1 on, or None."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise InvalidArgument(f"{name} is a whole number, 1 or more; got {value!r}")
    return value


def checked_part(min_delta: Any) -> float:
    """`min_delta`, if it is a number from 0 on."""
    if (
        isinstance(min_delta, bool)
        or not isinstance(min_delta, (int, float))
        or not 0 <= min_delta < math.inf
    ):
        raise InvalidArgument(f"min_delta is a part of the best value, 0 or more; got {min_delta!r}")
    return float(min_delta)


def check_factory(make_model: Any) -> None:
    """Refuse a model, or what cannot be called, in place of a function that makes one."""
    if isinstance(make_model, torch.nn.Module) or not callable(make_model):
        raise InvalidArgument(
            f"make_model is a {type(make_model).__name__}: give a function of the configuration that returns a model"
        )


def check_evaluate(evaluate: Any) -> None:
    """Refuse a list, which might be batches or one source for each trial."""
    if isinstance(evaluate, list):
        raise InvalidArgument(
            "evaluate is a list, and all trials are measured on the same data: give a tuple of tensors, or a "
            "DataLoader, of a list of batches DataLoader(batches, batch_size=None)"
        )
