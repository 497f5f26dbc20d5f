# SPDX-License-Identifier: MIT
"""Experiments that train as one fused array: one pass over the data, one model for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import InvalidArgument
from .experiment import Experiment

__all__ = ["ExperimentArray"]

# All models take their steps together, on batches of one shape.
_ALIKE = (
    "name", "epochs", "batch_size", "valid_batch_size", "precision", "drop_last", "most_steps", "log_every",
    "checkpoint_every", "save_checkpoints", "profile", "metrics.names", "plan", "clip_norm", "until",
)  # fmt: skip


@dataclass(frozen=True)
class ExperimentArray:
    """B experiments, one per model of an array. :func:`dnnsuite.training.run` trains them like a single one.

    Model i computes what experiment i computes alone, up to rounding. Values of optimizer, schedule, seed and data may
    differ. Architecture, shapes and number of steps must be the same.

    Attributes:
        experiments: experiment of each model, 0 to B - 1.
        names: names of the models in tables and figures; "model 0" and so on if empty.
    """

    experiments: Sequence[Experiment]
    names: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not self.experiments:
            raise InvalidArgument("an array has one experiment or more, got none")
        names = tuple(self.names) or tuple(f"model {i}" for i in range(self.B))
        object.__setattr__(self, "experiments", tuple(self.experiments))
        object.__setattr__(self, "names", names)
        if len(names) != self.B or len(set(names)) != self.B:
            raise InvalidArgument(f"{self.B} experiments take as many different names; got {', '.join(names)}")
        for index, other in enumerate(self.experiments):
            _check_alike(self.experiments[0], other, index)
        if self.first.compile:
            raise InvalidArgument(
                "enable_compile is for one model: leave it out, for an array records its steps instead"
            )

    @property
    def B(self) -> int:
        """Number of models."""
        return len(self.experiments)

    @property
    def first(self) -> Experiment:
        """The experiment of model 0, which has what all models have in common."""
        return self.experiments[0]


def _check_alike(first: Experiment, other: Experiment, index: int) -> None:
    """Refuse an experiment that cannot take its steps beside the first."""
    for name in _ALIKE:
        mine, theirs = (_value(each, name) for each in (first, other))
        if mine != theirs:
            raise InvalidArgument(
                f"models 0 and {index} differ in {name}, {mine!r} and {theirs!r}: models of one array take their steps "
                "together; run these apart"
            )
    for part in ("train", "valid"):
        sizes = [len(getattr(each.data, part)) for each in (first, other)]
        if sizes[0] != sizes[1]:
            raise InvalidArgument(
                f"models 0 and {index} have {sizes[0]} and {sizes[1]} samples in their {part} parts: models of one "
                "array have as many"
            )


def _value(experiment: Experiment, name: str) -> object:
    found: object = experiment
    for part in name.split("."):
        found = getattr(found, part)
    return found
