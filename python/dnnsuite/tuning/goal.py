# SPDX-License-Identifier: MIT
"""Goal of a sweep: a metric, its direction, and the best epoch so far."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidArgument, did_you_mean

_BY_DEFAULT = ("loss", "val_loss", "value", "train_loss")


@dataclass(frozen=True)
class Goal:
    """Metric and direction of a search.

    Attributes:
        metric: its name; None is `loss`, `value` or `train_loss`, whichever there is.
        sign: 1 if lower is better, -1 if higher is.
        patience: epochs without an improvement after which a trial ends; None never.
        min_delta: part by which a value has to improve.
        given: the direction was given, not told by the metric's name.
    """

    metric: str | None
    sign: float
    patience: int | None = None
    min_delta: float = 0.0
    given: bool = False


@dataclass
class Best:
    """The best epoch of all trials, and the weights after it. Of equal values the first trial's counts."""

    key: tuple[float, int, int] = (math.inf, -1, -1)  # (value, trial, epoch)
    weights: dict[str, Any] | None = None
    saved: bool = True


def metric_in(metrics: Mapping[str, float], asked: str) -> str:
    """Name that the metric asked for has in an epoch's metrics; for the empty name the default metric.

    Raises:
        InvalidArgument: there is none of this name.
    """
    if not asked:
        return next(name for name in _BY_DEFAULT if name in metrics)
    if asked in metrics:
        return asked
    held_out = asked.removeprefix("val_")  # all but train_loss are of held-out data
    if held_out in metrics:
        return held_out
    raise InvalidArgument(
        f"there is no metric {asked!r}{did_you_mean(asked, metrics)}: training and evaluate gave "
        f"{', '.join(sorted(metrics))}"
    )
