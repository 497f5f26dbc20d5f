# SPDX-License-Identifier: MIT
"""News of a sweep, and the reasons why trials fail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .._runs.failures import classify


@dataclass(frozen=True)
class Event:
    """News of a sweep, given to its callbacks.

    Attributes:
        kind: epoch, end (of a trial), or finished (the sweep).
        trial: number of the trial; of the best one if the sweep is finished.
        config: configuration of the trial.
        epoch: epochs the trial has trained.
        metrics: metrics of its last epoch, by name.
        status: running, paused, stopped, done, pruned, failed or given up.
    """

    kind: str
    trial: int
    config: dict[str, Any]
    epoch: int
    metrics: dict[str, float]
    status: str


class FailedElsewhere(Exception):
    """The failure of a trial in another process, of which its class and sentence are known."""

    def __init__(self, failure: str, message: str) -> None:
        super().__init__(message)
        self.failure, self.message = failure, message


def reason_of(error: BaseException) -> tuple[str, str]:
    """Return (class of a failure, its sentence)."""
    if isinstance(error, FailedElsewhere):
        return error.failure, error.message
    return classify(error), f"{type(error).__name__}: {error}"
