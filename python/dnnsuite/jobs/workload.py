# SPDX-License-Identifier: MIT
"""A training workload as one value: model, data, loss, optimizers, schedules, what is measured on held-out data.

Everything is written for one model, in plain torch. `jobs.declare` makes a job of the value, which trains one plain
model (B = 0) or, through `dnnsuite.fuse`, an array. Commands that run, train, tune, profile or rate jobs take it.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from .._lazy import Late, torch
from ..errors import InvalidArgument, check_choice, did_you_mean

if TYPE_CHECKING:
    from .. import models as models
    from ..data.batches import Rollouts
    from ._job import JobConfig
else:
    models = Late("dnnsuite.models")  # imported when a job makes one: a suite is described without torch

Values = Mapping[str, Any]
Loss = Callable[..., "torch.Tensor"]

PRESETS = ("quick", "default", "paper")
MAKES_BATCHES = "makes its batches with the model, which an array does not share"
BASELINES = "baselines"  # preset of a job of the suite of 2019, which a suite takes where it is there
_HELD_OUT_SAMPLES = 512  # that a metric is of, where it names no number of batches
HELD_OUT = 1 << 40  # added to the seed of drawn samples that are not trained on
_OBSERVATIONS = 30  # of a run, where a preset names no other number


class Batches(Protocol):
    """Endless training data.

    Attributes:
        record: provenance of the data: source, licence, identity.
        sizes: options that the data decide, for example the size of a vocabulary; they replace the given ones.
    """

    @property
    def record(self) -> Mapping[str, Any]: ...
    @property
    def sizes(self) -> Mapping[str, Any]: ...

    def batch(self, i: int) -> tuple[torch.Tensor, ...]:
        """Return batch `i` since training began; it depends on `i` and the seed alone."""


class Made(NamedTuple):
    """A class that torch and dnnsuite both have under one name, and its arguments.

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

    def kind(self, room: Any) -> Any:
        """Return its class in the module `room`.

        Raises:
            InvalidArgument: the module has no such class.
        """
        if hasattr(room, self.name):
            return getattr(room, self.name)
        torchs = room.__name__.startswith("torch")
        way = did_you_mean(self.name, dir(room)) if torchs else ": models that train by it train one by one, B = 0"
        raise InvalidArgument(f"{room.__name__} has no {self.name}{way}")

    def make(self, kind: Any, of: Any, hyper: Values, **more: Any) -> Any:
        """Make it, by its class, of these parameters or of this optimizer.

        Raises:
            InvalidArgument: the class does not take the arguments.
        """
        try:
            return kind(of, **self.filled(hyper), **more)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"{self.name}: {error}") from error

    def hyperparameters(self) -> set[str]:
        """Names of the hyperparameters that it takes."""
        parts = [part for value in self.arguments.values() for part in _parts(value)]
        return {part for part in parts if isinstance(part, str)}


class Group(NamedTuple):
    """Parameters with their own optimizer.

    Attributes:
        holds: (name, parameter) of the plain model → True for a parameter of this group. The first group that holds a
            parameter has it.
        optimizer: the group's optimizer.
    """

    holds: Callable[[str, torch.nn.Parameter], bool]
    optimizer: Made


@dataclasses.dataclass(frozen=True)
class Rate:
    """A schedule by steps, as a factor of the learning rate: a linear rise from 0, constant, then a fall to `end`.

    >>> from dnnsuite import jobs
    >>> [round(jobs.Rate(warmup=0.2, constant=0.5)(step, 10), 2) for step in (0, 1, 4, 6, 9, 12)]
    [0.5, 1.0, 1.0, 0.67, 0.17, 0.17]

    Attributes:
        warmup: share of the steps in which the rate rises.
        constant: share of the steps after which it falls; None: as soon as it has risen.
        shape: `linear` or `cosine`, of the fall.
        end: factor at the end of the fall, one step after the last; later steps keep the last factor.
    """

    warmup: float = 0.05
    constant: float | None = None
    shape: str = "linear"
    end: float = 0.0

    def __post_init__(self) -> None:
        if self.shape not in ("linear", "cosine"):
            raise InvalidArgument(f"shape {self.shape!r}: accepted: linear, cosine")
        if not 0 <= self.warmup <= self._falls_from <= 1:
            raise InvalidArgument(
                f"warmup {self.warmup} and constant {self._falls_from}: 0 <= warmup <= constant <= 1 is needed"
            )

    @property
    def _falls_from(self) -> float:
        return self.warmup if self.constant is None else self.constant

    def __call__(self, step: int, steps: int) -> float:
        """Return the factor of a step of `steps`."""
        at = min((step + 1) / steps, 1.0)
        if at < self.warmup:
            return at / self.warmup
        # The first step that falls is as far from the constant part as the last one is from the end.
        left = min(1.0, (1 + 1 / steps - at) / max(1 + 1 / steps - self._falls_from, 1e-9))
        if self.shape == "cosine":
            left = 0.5 - 0.5 * math.cos(math.pi * left)
        return self.end + (1 - self.end) * left


class Metric(NamedTuple):
    """A measure of what a model has learned, on samples that were held out.

    Attributes:
        name: name of the measure, for example "bits per byte".
        of: (model, *held-out batch) → the measure `[]`; the mean over the batches counts.
        better: `more` or `less`.
        target: value that a sound implementation reaches, by preset; a preset that is not in it has no target.
        batches: number of held-out batches; None for enough to cover 512 samples.
    """

    name: str
    of: Loss
    better: str = "more"
    target: Mapping[str, float] = {}
    batches: int | None = None

    def count(self, batch_size: int) -> int:
        """Return the number of held-out batches of this size that the measure covers."""
        return self.batches or math.ceil(_HELD_OUT_SAMPLES / batch_size)

    def reached(self, value: float, target: float) -> bool:
        """True if `value` is as good as the target, or better; NaN is not."""
        return value >= target if self.better == "more" else value <= target


@dataclasses.dataclass(frozen=True)
class Preset:
    """Protocol of a measurement: length, repeats, batch size and the Bs to measure.

    Attributes:
        epochs, iters_per_epoch, repeats, batch_size: values for each run; the first epoch is warm-up. Each repeat
            starts new processes.
        observed: number of observations of `dnnsuite run`, and of the batches in each; by default all steps of the
            epochs in about thirty.
        goal: relative half width of a speedup's 95 % interval at which the measurement stops.
        budget_s: seconds to reach `goal`, start-up included; None measures `epochs`.
        max_B: end of the search for the largest B; None searches until memory is full.
        max_num_Bs: number of Bs to measure.
        plan: the Bs to measure, instead of a search.
        options: options that are not the workload's defaults.
        search: settings of the search per mode, for example `{"hfta": {"dry_run_repeats": 1}}`.
        cuda: fields that differ on a GPU, for example `{"iters_per_epoch": 50}`.
    """

    epochs: int
    iters_per_epoch: int
    batch_size: int = 32
    repeats: int = 1
    observed: tuple[int, int] | None = None
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
        names = (field.name for field in dataclasses.fields(self) if field.name not in ("cuda", "observed"))
        fields = {name: getattr(self, name) for name in names}
        return {**fields, **(self.cuda if device.startswith("cuda") else {})}

    @property
    def observations(self) -> tuple[int, int]:
        """Number of observations, and of the batches in each."""
        steps = self.epochs * self.iters_per_epoch
        number = max(1, steps // _OBSERVATIONS)
        return self.observed or (steps // number, number)


def numbers_in(text: str) -> list[int]:
    """Numbers of an option that has several: "5 3 2"."""
    return [int(each) for each in text.split()]


def sizes(
    quick: tuple[int, int], default: tuple[int, int], paper: tuple[int, int], num_Bs: int = 2, **options: Any
) -> dict[str, Preset]:
    """Presets of a workload of today: (iterations per epoch, batch size) of each, and what the paper's size is."""
    return {
        "quick": Preset(3, *quick, plan=(1, 4), budget_s=40.0),
        "default": Preset(3, *default, plan=(1, 2, 4), budget_s=95.0),
        "paper": Preset(3, *paper, repeats=3, max_num_Bs=num_Bs, options=options),
    }


class Card(NamedTuple):
    """Facts that `dnnsuite show` and the page of all jobs have of a job beside its workload.

    Attributes:
        category: one of `cards.CATEGORIES`.
        model: its published size.
        source: keys of `references.bib`.
        about: deviations from the original, each with its reason.
        parameters: millions of parameters at its published size, in its source; None if none is published.
        changes: changes of the job, newest first; one that changes rates is marked `(numbers)`.
    """

    category: str
    model: str
    source: Sequence[str]
    about: Sequence[str]
    parameters: float | None = None
    changes: Sequence[str] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload:
    """A training workload, declared once for every command.

    Attributes:
        name: name for every command and `jobs.get`.
        description: the kind of training that it stands for, one line for `dnnsuite list` and the page of all jobs.
        unit: name of the items that a rate counts, in the plural: "images".
        options: the options and their defaults. A number stays a number of its kind, text stays text.
        hyper: hyper-parameters, with default values. One that is also an option may be given as either.
        sample: function of a `random.Random` that draws the hyperparameters of one model; by default each is within a
            factor of three of its value.
        model: (options, one model's hyperparameters) → a plain torch module. Parameters without
            `requires_grad` are frozen.
        data: (job's configuration, options) → `Batches`.
        rollouts: replacement of `data`, (configuration, options) → `Rollouts`, which the model makes (B = 0 only).
        loss: (model, *batch) → the loss `[]` of one model. Instead, a mapping of names of submodules to losses: each
            step trains these parts one after the other, each with its own optimizer while the others are frozen.
        optimizer: optimizer of each model, or groups of its parameters, each with an optimizer.
        schedule: schedule of the optimizer, which steps at the end of each epoch.
        rate: factor of the learning rates by (step, steps of the run), for example `Rate`.
        clip_norm: norm at which the gradients of a model are clipped, or the name of an option that has it.
        accumulate: number of equal parts of a batch whose gradients are added up before a step.
        after_step: function of the model after each step, without gradients: averages of weights, copies of targets.
        presets: presets by name; `default` is used for a missing one. One called `baselines` has the sizes of the suite
            of 2019; suites use it, and workflows use it for `paper`.
        items_per_sample: number of items of `unit` in one sample of a batch, or a function of the options.
        flops_per_item: floating-point operations of one training step per item, a function of the options.
        units: parts of the model that `NAME_partially_fused` leaves unfused one after the other, each a list of module
            names.
        held_out: function like `data`, for samples that are not trained on.
        metric: measure on the samples of `held_out`; give both or neither.
        files: (configuration, options) → (an endless loader of files, a function of what it gives to a batch, the
            files' origin) for a second rate with a loader in the timed loop; None where there are none.
        half: half precisions that the workload supports with autocast: bf16, fp16.
        precision: precision in which a suite trains the workload.
        loss_scale: scale of the loss in fp16 as long as no step overflows; None for one that grows.
        device: the only device that the workload trains on; empty for the one of the configuration.
        spread: True if, in a suite, one process per device of the machine trains the same model.
        reseed: seed torch's generators again after the model was made; if False, they continue.
        card: facts for a reader beside what is declared, if any.
    """

    name: str
    description: str
    unit: str
    model: Callable[[Values, Values], torch.nn.Module]
    loss: Loss | Mapping[str, Loss]
    optimizer: Made | Sequence[Group]
    presets: Mapping[str, Preset]
    data: Callable[[JobConfig, Values], Batches] | None = None
    rollouts: Callable[[JobConfig, Values], Rollouts] | None = None
    hyper: Mapping[str, float] = dataclasses.field(default_factory=dict)
    sample: Callable[[random.Random], Mapping[str, float]] | None = None
    options: Values = dataclasses.field(default_factory=dict)
    schedule: Made | None = None
    rate: Callable[[int, int], float] | None = None
    clip_norm: float | str | None = None
    accumulate: int = 1
    after_step: Callable[[Any], None] | None = None
    items_per_sample: float | Callable[[Values], float] = 1
    flops_per_item: Callable[[Values], float] | None = None
    units: Sequence[Sequence[str]] = ()
    held_out: Callable[[JobConfig, Values], Batches] | None = None
    metric: Metric | None = None
    files: Callable[[JobConfig, Values], tuple[Any, Any, Any] | None] | None = None
    half: Sequence[str] = ("bf16", "fp16")
    precision: str = "fp32"
    loss_scale: float | None = None
    device: str = ""
    spread: bool = False
    reseed: bool = True
    card: Card | None = None

    def __post_init__(self) -> None:
        for made in (*(group.optimizer for group in self.groups()), *filter(None, [self.schedule])):
            if unknown := sorted(made.hyperparameters() - set(self.hyper)):
                raise InvalidArgument(
                    f"workload {self.name}: {made.name} takes the hyperparameter {unknown[0]!r}, which is "
                    f"missing in `hyper`; it has {', '.join(self.hyper)}"
                )
        if (self.data is None) == (self.rollouts is None):
            raise InvalidArgument(f"workload {self.name} needs either `data` or `rollouts`")
        if "default" not in self.presets:
            raise InvalidArgument(f"workload {self.name} has no preset 'default'; it has {', '.join(self.presets)}")
        if (self.held_out is None) != (self.metric is None):
            given, lacks = ("metric", "held_out") if self.held_out is None else ("held_out", "metric")
            raise InvalidArgument(f"workload {self.name} has `{given}` without `{lacks}`")
        if self.metric is not None and self.metric.better not in ("more", "less"):
            raise InvalidArgument(f"workload {self.name}: better is {self.metric.better!r}; accepted: more, less")
        targets = self.metric.target if self.metric else {}
        if unknown := sorted({*self.presets, *targets} - {*PRESETS, BASELINES}):
            raise InvalidArgument(f"workload {self.name}: preset {unknown[0]!r} is none of {', '.join(PRESETS)}")
        if self.accumulate < 1:
            raise InvalidArgument(f"workload {self.name}: accumulate is {self.accumulate}, must be 1 or more")

    def batches(self, config: JobConfig, options: Values, held_out: bool = False) -> Any:
        """Load the data, or those that are held out; batches are checked as in `data.batches.Endless`."""
        from ..data.batches import Endless

        make: Any = self.held_out if held_out and self.held_out is not None else self.data or self.rollouts
        found = make(config, options)
        lacking = [name for name in ("record", "sizes") if not hasattr(found, name)]
        if lacking or not (hasattr(found, "batch") or hasattr(found, "batch_of")):
            raise InvalidArgument(
                f"workload {self.name}: its data, of {type(found).__name__}, have no `{(*lacking, 'batch')[0]}`; they "
                "need `batch` (or rollouts `batch_of`), `record` and `sizes`"
            )
        if hasattr(found, "batch_of") != (make is self.rollouts):
            kind, right = ("rollouts", "data") if make is self.rollouts else ("data", "rollouts")
            raise InvalidArgument(f"workload {self.name}: what `{kind}` returns belongs into `{right}`")
        return found if make is self.rollouts else Endless(self.name, found)

    def groups(self) -> tuple[Group, ...]:
        """Groups of parameters with their optimizers; a single group if there is one optimizer."""
        if isinstance(self.optimizer, Made):
            return (Group(lambda name, parameter: True, self.optimizer),)
        return tuple(self.optimizer)

    def parts(self) -> dict[str, Loss]:
        """Losses by the part of the model that each trains, in their order; "" is the whole model."""
        return {"": self.loss} if callable(self.loss) else dict(self.loss)

    def calls(self) -> tuple[Loss, ...]:
        """Functions of a model and a batch: the losses of its parts, then the metric if it has one."""
        return (*self.parts().values(), *((self.metric.of,) if self.metric else ()))

    def optimizers(
        self,
        parameters: Mapping[str, torch.nn.Parameter],
        hyper: Values,
        plain: Mapping[str, torch.nn.Parameter] | None = None,
    ) -> list[tuple[Made, list[Any]]]:
        """Optimizers with the parameters that each trains; groups with the same class share an optimizer.

        Args:
            parameters: trained parameters, by their names in the model.
            hyper: hyperparameters, those of one model or lists for all models of an array.
            plain: parameters of one plain model to evaluate the predicates on; by default the same.

        Raises:
            InvalidArgument: a parameter is in no group.
        """
        groups, of = self.groups(), {}  # type: ignore[var-annotated]
        for name, parameter in parameters.items():
            asked = (plain or parameters).get(name, parameter)
            place = next((i for i, group in enumerate(groups) if group.holds(name, asked)), None)
            if place is None:
                raise InvalidArgument(f"workload {self.name}: no group of optimizers holds {name}")
            of.setdefault(place, []).append(parameter)
        found: dict[str, list[tuple[Made, list[Any]]]] = {}
        for place in sorted(of):
            made = groups[place].optimizer
            found.setdefault(made.name, []).append((made, of[place]))
        return [
            (
                same[0][0],
                same[0][1] if len(same) == 1 else [{"params": own, **made.filled(hyper)} for made, own in same],
            )
            for same in found.values()
        ]

    def items(self, options: Values) -> float:
        """Return the number of items in one sample."""
        each = self.items_per_sample
        return each(options) if callable(each) else each

    def factor(self, step: int, steps: int) -> float:
        """Return the factor of the learning rate in a step; 1 without `rate`.

        Raises:
            InvalidArgument: `rate` returned something else than a finite number that is not negative.
        """
        found = 1.0 if self.rate is None else self.rate(step, steps)
        with suppress(TypeError, ValueError):
            if 0 <= float(found) < math.inf and not isinstance(found, str):
                return float(found)
        raise InvalidArgument(f"workload {self.name}: its rate in step {step} is {found!r}, and must be a number >= 0")

    def drawn(self, generator: random.Random) -> Mapping[str, float]:
        """Draw the hyperparameters of one model."""
        if self.sample is not None:
            return self.sample(generator)
        return {name: value * 3 ** generator.uniform(-1, 1) for name, value in self.hyper.items()}

    def clip(self, options: Values) -> float | None:
        """Return the norm at which gradients are clipped; None if they are not."""
        return options[self.clip_norm] if isinstance(self.clip_norm, str) else self.clip_norm

    def preset(self, name: str, device: str) -> dict[str, Any]:
        """Plain values of a preset on a device.

        Raises:
            InvalidArgument: no preset has the name; the message has the nearest one.
        """
        check_choice("unknown preset", name, PRESETS)
        other = BASELINES if name == "paper" and BASELINES in self.presets else "default"
        return self.presets.get(name, self.presets[other]).on(device)

    def settings(self, preset: str) -> dict[str, Any]:
        """Batch size, observations, batches in each, and options of a preset, as a suite takes them."""
        usual = self.presets.get(BASELINES, self.presets["default"])
        found = usual if preset == "default" else self.presets.get(preset, usual)
        repeat, number = found.observations
        own = {"batch_size": found.batch_size, "repeat": repeat, "number": number}
        return {**own, **self.options, **found.options}


def valued(function: Any, found: Any, batch: Sequence[Any] = (), trains: bool = True) -> Any:
    """Return the value of a loss or metric, which must be a tensor of one number.

    Args:
        function: the loss or metric, which is named in errors.
        found: the value that it returned.
        batch: tensors on the device where the value must be.
        trains: True if the value must have a gradient, where gradients are on.

    Raises:
        InvalidArgument: it is something else.
    """
    wrong = ""
    if not isinstance(found, torch.Tensor):
        wrong = f"returned a {type(found).__name__}"
    elif found.shape:
        wrong = f"returned one of shape {list(found.shape)}: take its mean()"
    elif found.dtype.is_complex:
        wrong = f"returned one of {found.dtype}"
    elif trains and torch.is_grad_enabled() and not found.requires_grad:
        wrong = "returned one without a gradient: it was detached, or made from numbers"
    elif batch and (place := getattr(batch[0], "device", found.device)) != found.device:
        wrong = f"returned one on the device {found.device}, where the batch is on {place}"
    if wrong:
        name = getattr(function, "__name__", "a loss or metric")
        raise InvalidArgument(f"{name} must return a tensor of one number, and {wrong}")
    return found


def _parts(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _filled(value: Any, hyper: Values) -> Any:
    if isinstance(value, tuple):
        return tuple(_filled(part, hyper) for part in value)
    return hyper[value] if isinstance(value, str) else value
