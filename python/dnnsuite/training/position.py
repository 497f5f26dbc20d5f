# SPDX-License-Identifier: MIT
"""Place of a run in its epochs and steps, with its history so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .._runs.rates import Sample
from .history import MODEL, Row

__all__ = ["Position"]


@dataclass
class Position:
    """Place in a run: `epoch` is the one under way, from 0; `iteration` the next in it; `step` over the run.

    Attributes:
        seconds: seconds of training in this epoch.
        minutes: minutes since the run began, validation included.
        best: the best score of each model so far, by its number.
        history: a row per epoch and model.
        samples: windows of training, for the rate of the whole run.
    """

    epoch: int = 0
    iteration: int = 0
    step: int = 0
    seconds: float = 0.0
    minutes: float = 0.0
    best: dict[int, float] = field(default_factory=dict)
    history: list[Row] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    def improved(self, model: int, score: float) -> bool:
        """Note a model's score; True if it is the best so far."""
        better = score > self.best.get(model, -math.inf)
        if better:
            self.best[model] = score
        return better

    def of_model(self, model: int) -> dict[str, Any]:
        """Place of one model, as the checkpoint of a run of one model holds it; windows of an array are no model's."""
        rows = [_without_model(row) for row in self.history if row.get(MODEL, model) == model]
        own = any(MODEL in row for row in self.history)
        samples = [] if own else [list(sample) for sample in self.samples]
        return {
            **vars(self), "best": self.best.get(model, -math.inf), "history": rows, "samples": samples
        }  # fmt: skip

    def of_all(self) -> dict[str, Any]:
        """Place of all models of an array, as its checkpoint holds it."""
        history, samples = [dict(row) for row in self.history], [list(sample) for sample in self.samples]
        return {**vars(self), "best": dict(self.best), "history": history, "samples": samples}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Position:
        """Return the position that :meth:`of_model` or :meth:`of_all` made."""
        best = state["best"]
        samples = [Sample(*each) for each in state.get("samples", ())]
        best = dict(best) if isinstance(best, dict) else {0: best}
        return cls(**{**state, "best": best, "samples": samples})

    def rows(self, models: Sequence[int]) -> list[Row]:
        """Return the rows of the last epoch that these models ended."""
        return self.history[-len(models) :] if models else []


def _without_model(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != MODEL}
