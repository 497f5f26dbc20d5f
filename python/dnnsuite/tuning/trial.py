# SPDX-License-Identifier: MIT
"""One configuration on its way through a sweep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Metrics = Mapping[str, float]

#: Status of a trial that has ended for good.
ENDED = ("done", "stopped", "pruned", "given up", "failed")


@dataclass(eq=False)
class Trial:
    """A trial: its configuration, and how far it has come.

    Attributes:
        number: number from 0, in the order in which the algorithm made the trials.
        config: its values by name, with which it trains now.
        earlier: (last epoch, configuration) of those that it had before it took over another's state.
        seed: seed of its weights and random streams.
        status: waiting, running, paused, or one of `ENDED`: done, stopped (early, by patience), pruned, given up
            (by its rung), failed.
        history: metrics after each epoch.
        failure, message: class and sentence of what ended a failed trial.
        seconds: its share of the time of the arrays that it was in.
        audits_passed: steps of these arrays that were run both ways, replayed and eager, and left the same bits.
        known: epochs that an earlier process has finished, which are not trained again.
        trained: epochs in its weights as they are now; fewer than `epoch` while it makes up for some that were
            lost.
        state: weights, optimizer, schedule and random streams while it is in no array; None at its start.
        kept: a state to go back to where an array is lost, or the file of one; None is its start.
        inherited: states taken over, in population-based training.
        source: configuration and seed of the trial whose state was taken over last.
        trained_bytes: bytes of the parameters that it trains; an array holds frozen ones once.
        alone: epochs up to which it trains by itself, because an array that held it failed there.
    """

    number: int
    config: dict[str, Any]
    seed: int
    status: str = "waiting"
    history: list[dict[str, float]] = field(default_factory=list)
    failure: str = ""
    message: str = ""
    seconds: float = 0.0
    audits_passed: int = 0
    known: list[dict[str, float]] = field(default_factory=list)
    state: Any = None
    trained: int = 0
    kept: Any = None
    group: Any = None
    inherited: list[tuple[int, int]] = field(default_factory=list)  # (epoch, trial whose state it took over)
    source: tuple[dict[str, Any], int] | None = None
    earlier: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    trained_bytes: int = 0
    alone: int = 0
    best: tuple[float, int] = (float("inf"), 0)  # (value, lower is better; its epoch)
    changed: dict[str, str] = field(default_factory=dict)  # what differed when it was resumed, by name
    improved: int = 0  # epoch of the last improvement that counts for patience

    @property
    def epoch(self) -> int:
        """Epochs that it has trained and reported."""
        return len(self.history)

    def config_at(self, epoch: int) -> dict[str, Any]:
        """Configuration with which epoch `epoch`, from 1, was trained."""
        return next((config for last, config in self.earlier if epoch <= last), self.config)

    @property
    def best_config(self) -> dict[str, Any]:
        """Configuration of its best epoch; the one it has now where no epoch has a value."""
        return self.config_at(self.best[1]) if self.best[1] else self.config

    def as_it_is(self) -> Trial:
        """Return a copy that keeps what a record contains, while this trial continues."""
        lists = [*self.history], [*self.earlier], [*self.inherited]
        return replace(self, history=lists[0], earlier=lists[1], inherited=lists[2])

    def take_over(self, source: Trial, config: Mapping[str, Any] | None) -> None:
        """Continue from the state of another trial, with another configuration; None for the other trial's."""
        theirs = source.config_at(self.epoch)
        self.earlier.append((self.epoch, self.config))
        self.config = dict(config or theirs)
        self.inherited.append((self.epoch, source.number))
        self.source = theirs, source.seed

    @property
    def goes_on_as_copy(self) -> bool:
        """True if it continues from the state of another trial."""
        return bool(self.inherited) and self.inherited[-1][0] == self.trained

    @property
    def over(self) -> bool:
        """True if it has ended for good."""
        return self.status in ENDED
