# SPDX-License-Identifier: MIT
"""Declaration of a fused workload, from which the job of one plain model and that of B models at once are made.

Model and loss are written for one model, in plain torch; `jobs.declare` makes a `FusedJob` of them, which trains one of
them (B = 0) or, through `dnnsuite.fuse`, an array. `dnnsuite.jobs.fused` has the declarations of the package.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..errors import InvalidArgument, did_you_mean

if TYPE_CHECKING:
    import torch

    from ._workload import JobConfig

Values = Mapping[str, Any]
Loss = Callable[..., "torch.Tensor"]

PRESETS = ("quick", "default", "paper")


class Batches(Protocol):
    """Training data without an end.

    Attributes:
        record: provenance: source, licence, what identifies it.
        sizes: options that the data decide (a vocabulary's size), which replace those asked for.
    """

    @property
    def record(self) -> Mapping[str, Any]: ...
    @property
    def sizes(self) -> Mapping[str, Any]: ...

    def batch(self, i: int) -> tuple[torch.Tensor, ...]:
        """Return batch `i` since training began, on the CPU; it depends on `i` and the seed alone."""


class Made(NamedTuple):
    """A class that torch and dnnsuite have by the same name, and its arguments.

    An argument is the name of a hyperparameter, a constant, or a tuple of these:
    `Made("Adam", {"lr": "lr", "betas": ("beta1", 0.999)})`.

    >>> from dnnsuite import jobs
    >>> made = jobs.Made("Adam", {"lr": "lr", "betas": ("beta1", 0.999)})
    >>> made.filled({"lr": 0.1, "beta1": 0.9})
    {'lr': 0.1, 'betas': (0.9, 0.999)}
    """

    name: str
    arguments: Values

    def filled(self, hyper: Values) -> dict[str, Any]:
        """Return the arguments with the values of `hyper`, those of one model or lists for all models."""
        return {name: _filled(value, hyper) for name, value in self.arguments.items()}

    def hyperparameters(self) -> set[str]:
        """Names of the hyperparameters that it takes."""
        parts = [part for value in self.arguments.values() for part in _parts(value)]
        return {part for part in parts if isinstance(part, str)}


@dataclasses.dataclass(frozen=True)
class Preset:
    """Protocol of a measurement: length, repeats, batch size and the Bs to measure.

    Attributes:
        epochs, iters_per_epoch, repeats, batch_size: values for each run; the first epoch is warm-up. A repeat starts
            all processes anew.
        goal: half width of a speedup's 95 % interval, relative, at which it is known.
        budget_s: seconds of training to reach it in; None measures `epochs`.
        max_B: end of the search for the largest B; None searches until memory is full.
        max_num_Bs: number of Bs to measure.
        plan: the Bs to measure, instead of a search.
        options: options that are not the workload's defaults.
        search: settings of the search per mode, as `{"hfta": {"dry_run_repeats": 1}}`.
        cuda: fields that are others on a GPU, as `{"iters_per_epoch": 50}`.
    """

    epochs: int
    iters_per_epoch: int
    batch_size: int = 32
    repeats: int = 1
    goal: float = 0.05
    budget_s: float | None = None
    max_B: int | None = None
    max_num_Bs: int = 5
    plan: tuple[int, ...] | None = None
    options: Values = dataclasses.field(default_factory=dict)
    search: Mapping[str, Values] = dataclasses.field(default_factory=dict)
    cuda: Values = dataclasses.field(default_factory=dict)

    def on(self, device: str) -> dict[str, Any]:
        """Plain values for a device."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "cuda"}
        return {**fields, **(self.cuda if device.startswith("cuda") else {})}


@dataclasses.dataclass(frozen=True)
class FusedWorkload:
    """One training workload, declared once.

    Attributes:
        name: name for `dnnsuite workflow NAME` and `jobs.get`.
        description: one line for `dnnsuite list`.
        unit: name of the items that a rate counts, in the plural: "images".
        options: the options and their defaults. A number stays a number of its kind, text stays text.
        hyper: hyperparameters and the values of a model for which none are drawn.
        sample: draws the hyperparameters of one model.
        model: (options, one model's hyperparameters) → a plain torch module.
        data: (job's configuration, options) → `Batches`.
        loss: (model, *batch) → the loss `[]` of one model. Instead, a mapping of names of submodules to losses: in
            each step these parts are trained one after the other, the others held, each by an optimizer of its own.
        optimizer, schedule: those of each model; the schedule goes on at the end of an epoch.
        presets: presets by name; a missing one is that of `default`.
        items_per_sample: number of items of `unit` in one sample of a batch.
        units: parts of the model, names of modules each, as `NAME_partially_fused` leaves them unfused in turn.
        held_out: function like `data`, for samples that are not trained on.
        accuracy: (model, *batch) → the share `[]` of right answers of one model. Both or neither; `convergence`
            reports them.
    """

    name: str
    description: str
    unit: str
    model: Callable[[Values, Values], torch.nn.Module]
    data: Callable[[JobConfig, Values], Batches]
    loss: Loss | Mapping[str, Loss]
    optimizer: Made
    hyper: Mapping[str, float]
    sample: Callable[[random.Random], Mapping[str, float]]
    presets: Mapping[str, Preset]
    options: Values = dataclasses.field(default_factory=dict)
    schedule: Made | None = None
    items_per_sample: int = 1
    units: Sequence[Sequence[str]] = ()
    held_out: Callable[[JobConfig, Values], Batches] | None = None
    accuracy: Loss | None = None

    def __post_init__(self) -> None:
        for made in filter(None, (self.optimizer, self.schedule)):
            if unknown := sorted(made.hyperparameters() - set(self.hyper)):
                raise InvalidArgument(
                    f"workload {self.name}: {made.name} takes the hyperparameter {unknown[0]!r}, which `hyper` "
                    f"has not; it has {', '.join(self.hyper)}"
                )
        if "default" not in self.presets:
            raise InvalidArgument(
                f"workload {self.name} has no preset 'default'; it has {', '.join(self.presets)}"
            )
        if (self.held_out is None) != (self.accuracy is None):
            given, lacks = ("accuracy", "held_out") if self.held_out is None else ("held_out", "accuracy")
            raise InvalidArgument(f"workload {self.name} has `{given}` without `{lacks}`")
        if unknown := sorted(set(self.presets) - set(PRESETS)):
            raise InvalidArgument(
                f"workload {self.name}: preset {unknown[0]!r} is none of {', '.join(PRESETS)}"
            )

    def parts(self) -> dict[str, Loss]:
        """Losses by the part of the model that each trains, in their order; "" is the whole model."""
        return {"": self.loss} if callable(self.loss) else dict(self.loss)

    def calls(self) -> tuple[Loss, ...]:
        """Functions of a model and a batch: the losses of its parts, then the accuracy if it has one."""
        return (*self.parts().values(), *((self.accuracy,) if self.accuracy else ()))

    def preset(self, name: str, device: str) -> dict[str, Any]:
        """Plain values of a preset on a device.

        Raises:
            InvalidArgument: no preset has the name; the message has the nearest one.
        """
        if name not in PRESETS:
            raise InvalidArgument(
                f"unknown preset {name!r}; accepted: {', '.join(PRESETS)}{did_you_mean(name, PRESETS)}"
            )
        return self.presets.get(name, self.presets["default"]).on(device)


def _parts(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _filled(value: Any, hyper: Values) -> Any:
    if isinstance(value, tuple):
        return tuple(_filled(part, hyper) for part in value)
    return hyper[value] if isinstance(value, str) else value
