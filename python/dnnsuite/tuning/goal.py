# SPDX-License-Identifier: MIT
"""Goal of a sweep: a metric, its direction, and the best epoch so far."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import InvalidArgument, did_you_mean

_BY_DEFAULT = ("loss", "val_loss", "value", "train_loss")


@dataclass(frozen=True)
class Goal:
    """Metric and direction of a search.

    Attributes:
        metric: its name; None means the first that exists of `loss`, `val_loss`, `value` and `train_loss`.
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


Key = tuple[float, int, int]  # (value, trial, epoch)


@dataclass
class Best:
    """The best epochs of the best trials, and the weights after them. Of equal values the first trial's counts."""

    kept: dict[int, tuple[Key, dict[str, Any]]] = field(default_factory=dict)  # by trial, the best first
    saved: bool = True

    @property
    def key(self) -> Key:
        """The best of all."""
        return next((key for key, _ in self.kept.values()), (math.inf, -1, -1))

    @property
    def weights(self) -> dict[str, Any] | None:
        """Weights of the best of all; None before there is one."""
        return next((weights for _, weights in self.kept.values()), None)

    def wants(self, key: Key, most: int) -> bool:
        """True if an epoch is among the `most` best, of which each trial has one."""
        if key[1] in self.kept:
            return key < self.kept[key[1]][0]
        return len(self.kept) < most or key < max(own for own, _ in self.kept.values())

    def take(self, key: Key, weights: dict[str, Any], most: int) -> None:
        """Keep an epoch's weights, and no more than so many."""
        self.kept[key[1]] = key, weights
        self.kept = dict(sorted(self.kept.items(), key=lambda one: one[1][0])[:most])
        self.saved = False

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as a file keeps them."""
        others = [[list(key), weights] for key, weights in list(self.kept.values())[1:]]
        return {"key": list(self.key), "weights": self.weights, "others": others}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Best:
        """Read what `to_dict` made."""
        rows = [(found["key"], found["weights"]), *found.get("others", ())]
        return cls({int(n): ((float(value), int(n), int(epoch)), weights) for (value, n, epoch), weights in rows})


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
    more = "; held-out data as evaluate= give loss and acc" if [*metrics] == ["train_loss"] else ""
    raise InvalidArgument(
        f"there is no metric {asked!r}{did_you_mean(asked, metrics)}: training and evaluate gave "
        f"{', '.join(sorted(metrics))}{more}"
    )
