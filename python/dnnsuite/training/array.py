# SPDX-License-Identifier: MIT
"""Experiments that train as one fused array, one pass over the data with one model for each, and configurations that
differ in a few keys, of which such an array is made.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import InvalidArgument, did_you_mean
from .experiment import Experiment, experiment_of
from .settings import Settings
from .sources import AugmentedPictures, Data, find_data

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


# Keys that models of one array may have different values of: all others decide shapes or the number of steps.
VARYING = ("lr", "momentum", "weight_decay", "lr_warmup_epochs", "schedule", "lr_scaling", "rnd_rotation_angle", "seed")

Variants = list[tuple[str, Settings]]


def vary_of(texts: Sequence[str]) -> dict[str, list[str]]:
    """Parse `key=value,value,…` arguments into a mapping.

    Raises:
        InvalidArgument: one is not of that form, or a key is given twice.
    """
    found: dict[str, list[str]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        if not equals or not key or not all(each.strip() for each in values.split(",")):
            raise InvalidArgument(f"--vary {text!r} is not key=value,value, e.g. lr=0.05,0.1")
        if key in found:
            raise InvalidArgument(f"--vary {key} is given twice: name all its values once")
        found[key] = [each.strip() for each in values.split(",")]
    return found


def varied(settings: Settings, vary: Mapping[str, Sequence[Any]], B: int | None = None) -> Variants:
    """Return (name, settings) for each model: `settings` with other values for the keys in `vary`.

    Args:
        settings: values of all other keys.
        vary: list of values for each key.
        B: number of models. Without it, every combination of the values is a model, and the last key varies fastest.
            With it, every combination is a model if there are B of them; otherwise each key has B values, one per
            model, or one value for all.

    Raises:
        InvalidArgument: a key cannot vary, a value is refused, the values do not make B models, or two models are
            alike.

    >>> from dnnsuite import training
    >>> [name for name, _ in training.varied(training.Settings(), {"lr": [0.1, 0.2], "seed": [1, 2]})]
    ['lr=0.1, seed=1', 'lr=0.1, seed=2', 'lr=0.2, seed=1', 'lr=0.2, seed=2']
    """
    if not vary:
        raise InvalidArgument(f"B={B} equal models: let a key vary, e.g. --vary lr=0.05,0.1")
    for key in vary:
        if key not in VARYING:
            raise InvalidArgument(
                f"{key} cannot vary within an array, of which all models take their steps together"
                f"{did_you_mean(key, VARYING)}; these can: {', '.join(VARYING)}"
            )
    variants = []
    for values in _combined(vary, B):
        chosen = dict(zip(vary, values, strict=True))
        own = settings.changed(chosen)
        variants.append((", ".join(f"{key}={_text(getattr(own, key))}" for key in vary), own))
    names = [name for name, _ in variants]
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgument(f"{names.count(name)} models have {name}: they would be alike")
    return variants


def _combined(vary: Mapping[str, Sequence[Any]], B: int | None) -> list[tuple[Any, ...]]:
    """Values of each model."""
    counts = [len(values) for values in vary.values()]
    if B is None or math.prod(counts) == B:
        return list(itertools.product(*vary.values()))
    if B < 1:
        raise InvalidArgument(f"B is {B}: must be at least 1")
    if all(count in (1, B) for count in counts):
        return list(zip(*(values if len(values) == B else [values[0]] * B for values in vary.values()), strict=True))
    told = ", ".join(f"{len(values)} of {key}" for key, values in vary.items())
    raise InvalidArgument(
        f"B={B}, and --vary has {told}: give {B} of each, one per model, or leave out B for all {math.prod(counts)} "
        "combinations"
    )


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def data_of(variants: Variants, dataroot: str | Path | None = None) -> list[Data]:
    """Find the data of each variant. Images that several variants share are in memory once.

    Args:
        variants: (name, settings) of each model, from :func:`varied`.
        dataroot: folder with the data; see :func:`find_data`, also for exceptions.
    """
    made: dict[tuple[Any, ...], Data] = {}
    for _, settings in variants:
        key = (settings.seed, settings.rnd_rotation_angle)
        if key not in made:
            made[key] = _beside(next(iter(made.values()), None), settings, dataroot)
    return [made[settings.seed, settings.rnd_rotation_angle] for _, settings in variants]


def _beside(first: Data | None, settings: Settings, dataroot: str | Path | None) -> Data:
    """Return the data of a configuration, which shares with the first model's what is the same."""
    if first is not None and not isinstance(first.train, AugmentedPictures):
        return first  # seeds are the loader's, which draws for each sample
    found = find_data(settings, dataroot)
    if first is None:
        return found
    found.train.share_memory_with(first.train)
    same = found.valid.share_memory_with(first.valid)
    return replace(found, valid=first.valid) if same else found


def array_of(name: str, variants: Variants, data: Sequence[Data], device: str, plan: str = "sc20") -> ExperimentArray:
    """Make an array of B experiments from configurations, to train them at once.

    Args:
        name: name of the run.
        variants: (name, settings) of each model, from :func:`varied`.
        data: data of each model, from :func:`data_of`.
        device: cpu or cuda.
        plan: file or suite that the run belongs to, for the record.
    """
    experiments = [
        experiment_of(name, settings, own, device, plan) for (_, settings), own in zip(variants, data, strict=True)
    ]
    return ExperimentArray(experiments, [label for label, _ in variants])
