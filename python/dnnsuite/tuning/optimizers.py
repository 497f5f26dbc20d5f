# SPDX-License-Identifier: MIT
"""Optimizers and schedules of trials: named, given as torch's own, or as a LightningModule configures them."""

from __future__ import annotations

import abc
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .. import optim
from ..errors import InvalidArgument, did_you_mean
from .slots import TorchSchedules, group_values, without_marks
from .space import Config

Values = dict[str, Any]
Rest = Callable[[Any, Any, int], None]
_AROUND = (optim.SAM, optim.Lookahead)
_BY_BATCH = {"OneCycleLR", "CyclicLR"}  # schedules that count batches


class Optimization(abc.ABC):
    """Optimizer and schedule of an array: made once, given other trials later.

    Attributes:
        every: epoch or batch, after which the schedule moves; empty for what is usual for its class.
    """

    every = ""

    def steps_by_batch(self, schedule: Any) -> bool:
        """True if the schedule moves after each batch."""
        kinds = schedule.kinds if isinstance(schedule, TorchSchedules) else {type(schedule).__name__}
        return self.every == "batch" or (not self.every and bool(kinds & _BY_BATCH))

    def taken(self, configs: Sequence[Config]) -> set[str]:
        """Names of the configurations' values that it reads, beside those that it is called with."""
        return set()

    def kind(self, model: Any, config: Config) -> Any:
        """Return the kind that the optimizers of an array share: models of other kinds are in others, and take
        no state from one another."""
        return None

    @abc.abstractmethod
    def made(self, array: torch.nn.Module, models: Sequence[Any], configs: Sequence[Config]) -> tuple[Any, Any]:
        """Return (optimizer, schedule or None) of an array of these models."""

    @abc.abstractmethod
    def fresh(self, model: Any, config: Config) -> tuple[Values, Rest]:
        """Return (values for `array.replace`, a function of optimizer, schedule and slot that sets the rest)."""


def _nothing(optimizer: Any, schedule: Any, slot: int) -> None:
    """A fresh model whose values are all in `array.replace`."""


class Named(Optimization):
    """A class by name, or by the `optimizer` of each configuration, and for one around another its `base_optimizer`."""

    NAMES = ("optimizer", "base_optimizer")

    def __init__(self, optimizer: Any, schedule: Any = None) -> None:
        self._given, self._schedule, self._kinds = optimizer, schedule, dict[str, _OneKind]()
        if optimizer is not None and not issubclass(_class_of(optimizer, optim, "optimizer")[0], _AROUND):
            self._of({})  # refuses what it does not know before the first trial

    def _of(self, config: Config) -> _OneKind:
        given = config.get("optimizer", "AdamW") if self._given is None else self._given
        base = config.get("base_optimizer")
        key = repr((given, base))
        if key not in self._kinds:
            self._kinds[key] = _OneKind(given, self._schedule, base)
        return self._kinds[key]

    def taken(self, configs: Sequence[Config]) -> set[str]:
        kinds = [self._of(config) for config in configs]
        around = any(isinstance(kind.optimizer, _AroundAnother) for kind in kinds)
        own = {name for name, read in zip(self.NAMES, (self._given is None, around), strict=True) if read}
        return own.union(*(kind.taken() for kind in kinds))

    def kind(self, model: Any, config: Config) -> Any:
        return self._of(config).name

    def made(self, array: torch.nn.Module, models: Sequence[Any], configs: Sequence[Config]) -> tuple[Any, Any]:
        return self._of(configs[0]).made(array, configs)

    def fresh(self, model: Any, config: Config) -> tuple[Values, Rest]:
        return self._of(config).fresh(config), _nothing


class _AroundAnother:
    """SAM or Lookahead around a class: it takes the arguments of both, as a class does."""

    def __init__(self, kind: type[optim.ArrayOptimizer], base: Any) -> None:
        own = {"rho", "adaptive"} if kind is optim.SAM else {"la_steps", "la_alpha"}
        if base is None:
            raise InvalidArgument(
                f"{kind.__name__} is around another optimizer: optimizer=({kind.__name__!r}, "
                "{'base_optimizer': 'SGD'}), or a base_optimizer in each configuration"
            )
        self._kind, self._own, self.torch_class = kind, own, None
        self._base, _ = _class_of(base, optim, "optimizer")
        self.__name__ = f"{kind.__name__} around {self._base.__name__}"
        self.per_model, self.pairs = (*self._base.per_model, *(own - {"adaptive"})), self._base.pairs
        named = [p for name, p in inspect.signature(kind).parameters.items() if name in own]
        theirs = [p for p in inspect.signature(self._base).parameters.values() if p.kind is not p.VAR_KEYWORD]
        self.__signature__ = inspect.Signature([p.replace(kind=p.KEYWORD_ONLY) for p in (*theirs, *named)])

    def __call__(self, params: Any, **values: Any) -> optim.ArrayOptimizer:
        if self._kind is optim.SAM:
            return optim.SAM(params, self._base, **values)
        own = {name: values.pop(name) for name in self._own & set(values)}
        return optim.Lookahead(self._base(params, **values), **own)


class _OneKind:
    """A class of optimizers, which takes the values of a configuration that have the names of its arguments."""

    def __init__(self, optimizer: Any, schedule: Any, base: Any) -> None:
        self.optimizer, self._constants = _class_of(optimizer, optim, "optimizer")
        if issubclass(self.optimizer, _AROUND):
            self.optimizer = _AroundAnother(self.optimizer, self._constants.pop("base_optimizer", base))
        self.name = self.optimizer.__name__
        self._schedule: Any = None
        self._schedule_constants: Values = {}
        if schedule is not None:
            self._schedule, self._schedule_constants = _class_of(schedule, optim.lr_scheduler, "scheduler")
        self._names = _arguments(self.optimizer)
        self._schedule_names = _arguments(self._schedule) if self._schedule else set()
        _refuse_unknown(self.optimizer, self._constants, self._names)
        if self._schedule:
            _refuse_unknown(self._schedule, self._schedule_constants, self._schedule_names)

    def taken(self) -> set[str]:
        return self._names | self._schedule_names

    def _values(self, config: Config) -> Values:
        return {**self._constants, **{name: config[name] for name in config if name in self._names}}

    def _schedule_values(self, config: Config) -> Values:
        own = {name: config[name] for name in config if name in self._schedule_names - self._names}
        given = {**self._schedule_constants, **own}
        if missing := sorted(
            self._schedule_names & set(_signature(self._schedule)) - set(_defaults(self._schedule)) - set(given)
        ):
            kind, name = self._schedule.__name__, missing[0]
            raise InvalidArgument(
                f"{kind} needs {name}: scheduler=({kind!r}, {{{name!r}: ...}}), or {name!r} in the space"
            )
        return given

    def made(self, array: torch.nn.Module, configs: Sequence[Config]) -> tuple[Any, Any]:
        values = _together(self.optimizer, [self._values(config) for config in configs])
        optimizer = self.optimizer(list(array.parameters()), **values)
        if self._schedule is None:
            return optimizer, None
        chosen = [self._schedule_values(config) for config in configs]
        return optimizer, self._schedule(optimizer, **_together(self._schedule, chosen))

    def fresh(self, config: Config) -> Values:
        values = {**_defaults(self.optimizer), **self._values(config)}
        for pair, names in getattr(self.optimizer, "pairs", {}).items():
            if pair in values:
                values = {**dict(zip(names, values.pop(pair), strict=True)), **values}
        per_model = {*self.optimizer.per_model, "max_grad_norm"}
        found = {name: value for name, value in values.items() if name in per_model and value is not None}
        if self._schedule is not None:
            given = {**_defaults(self._schedule), **self._schedule_values(config)}
            found |= {name: value for name, value in given.items() if name in (*self._schedule.per_model, "milestones")}
        return found


class OfTorch(Optimization):
    """Optimizers and schedules that a user's function makes for one model, in plain torch."""

    def __init__(self, make: Callable[[Any, Config], tuple[Any, Any]], **constants: Any) -> None:
        self._make, self._constants = make, constants

    def made(self, array: torch.nn.Module, models: Sequence[Any], configs: Sequence[Config]) -> tuple[Any, Any]:
        pairs = [self._make(model, config) for model, config in zip(models, configs, strict=True)]
        places = {id(p): i for i, p in enumerate(models[0].parameters())}
        held = list(array.parameters())
        order = [places[id(p)] for group in pairs[0][0].param_groups for p in group["params"]]
        alone = [one for one, _ in pairs]
        optimizer = self._of_all(alone, [held[i] for i in order])
        schedules = [schedule for _, schedule in pairs]
        return optimizer, None if schedules[0] is None else TorchSchedules(optimizer, schedules)

    def _of_all(self, alone: Sequence[Any], params: list[Any]) -> optim.ArrayOptimizer:
        """Make one optimizer of those of all models."""
        each = [_each(one) for one in alone]
        kinds = {tuple(type(one).__name__ for one in ones) for ones in each}
        if len(kinds) > 1:
            raise InvalidArgument(f"the models' optimizers differ: {' and '.join(map(str, sorted(kinds)))}")
        constants = self._constants if len(each[0]) == 1 else {}
        made = []
        for ones in zip(*each, strict=True):
            count = sum(len(group["params"]) for group in ones[0].param_groups)
            own, params = params[:count], params[count:]
            with without_marks(ones):
                made.append(optim.ArrayOptimizer.from_models(ones, own, **constants))
        return made[0] if len(made) == 1 else optim.ChainedOptimizer(made, **self._constants)

    def kind(self, model: Any, config: Config) -> Any:
        alone, schedule = self._make(model, config)
        flags = [{name: v for name, v in group.items() if isinstance(v, bool)} for group in alone.param_groups]
        sizes = [len(group["params"]) for group in alone.param_groups]
        return tuple(map(type, _each(alone))), tuple(sizes), repr(flags), schedule is None

    def fresh(self, model: Any, config: Config) -> tuple[Values, Rest]:
        alone, schedule = self._make(model, config)
        groups = [group_values(group) for group in alone.param_groups]

        def rest(optimizer: Any, schedules: Any, slot: int) -> None:
            for group, values in zip(optimizer.param_groups, groups, strict=True):
                for name, value in values.items():
                    if isinstance(group.get(name), torch.Tensor):
                        vector = group[name].clone()
                        vector[slot] = value
                        group[name] = vector
            if schedule is not None:
                schedules.put(slot, schedule)

        names = {name for one in _each(alone) for name in getattr(optim, type(one).__name__).per_model}
        values = {name: value for group in reversed(groups) for name, value in group.items()}
        return {name: value for name, value in values.items() if name in names}, rest


def _each(alone: Any) -> Sequence[Any]:
    """List the optimizers that a model's is of."""
    return alone.optimizers if isinstance(alone, Several) else [alone]


def _class_of(given: Any, room: Any, what: str) -> tuple[Any, Values]:
    """Return (class of ours, constant arguments) of a name, a class of torch's or ours, or a pair of one and
    arguments."""
    constants: Values = {}
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], Mapping):
        given, constants = given[0], dict(given[1])
    name = given if isinstance(given, str) else getattr(given, "__name__", "")
    found = getattr(room, name, None) if name and not name.startswith("_") else None
    if isinstance(given, torch.optim.Optimizer):
        kind = type(given).__name__
        raise InvalidArgument(f"optimizer is an object; a sweep makes one for each model: optimizer={kind!r}")
    if not isinstance(found, type):
        hint = did_you_mean(str(name), room.__all__)
        raise InvalidArgument(
            f"{what} {given!r} is none of dnnsuite.{'optim' if what == 'optimizer' else 'optim.lr_scheduler'}{hint}; "
            f"name one, for example {'AdamW' if what == 'optimizer' else 'CosineAnnealingLR'!r}"
        )
    return found, constants


def _signature(kind: Any) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(kind).parameters


def _arguments(kind: Any) -> set[str]:
    """Names that the class takes for a model, halves of pairs too."""
    per_model, pairs = getattr(kind, "per_model", ()), getattr(kind, "pairs", {})
    known = {name for name in _signature(kind) if name not in ("self", "params", "optimizer", "B", "last_epoch")}
    return {*per_model, *pairs, *known, "max_grad_norm"} if hasattr(kind, "torch_class") else {*per_model, *known}


def _defaults(kind: Any) -> Values:
    """Values of the arguments that were not given."""
    return {name: p.default for name, p in _signature(kind).items() if p.default is not inspect.Parameter.empty}


def _refuse_unknown(kind: Any, constants: Mapping[str, Any], names: set[str]) -> None:
    if unknown := sorted(set(constants) - names - {"foreach", "fused", "capturable", "maximize"}):
        raise InvalidArgument(
            f"{kind.__name__} has no argument {unknown[0]!r}{did_you_mean(unknown[0], names)}; it takes "
            f"{', '.join(sorted(names))}"
        )


def _together(kind: Any, values: Sequence[Values]) -> Values:
    """Arguments of an array out of those of its models: lists of one per model where they may differ.

    Halves of a pair (`beta1`) are put into it (`betas`).
    """
    defaults = _defaults(kind)
    found: Values = {}
    pairs = getattr(kind, "pairs", {})
    halves = {half: (pair, place) for pair, names in pairs.items() for place, half in enumerate(names)}
    for pair, names in pairs.items():
        if any({pair, *names} & set(own) for own in values):
            rows: list[Any] = [own.get(pair, defaults.get(pair)) for own in values]
            found[pair] = tuple(
                [own.get(half, row[place]) for own, row in zip(values, rows, strict=True)]
                for place, half in enumerate(names)
            )
    per_model = {*getattr(kind, "per_model", ()), "max_grad_norm"}
    for name in {name for own in values for name in own} - set(halves) - set(pairs):
        column = [own.get(name, defaults.get(name)) for own in values]
        if name in per_model:
            found[name] = column
        elif all(value == column[0] for value in column):
            found[name] = column[0]
        else:
            raise InvalidArgument(f"{kind.__name__}: {name} has to be the same for all trials, got {column}")
    return found


def chosen_optimization(optimizer: Any, schedule: Any, lightning: bool) -> Optimization:
    """Choose the optimization of trials.

    Args:
        optimizer: a name or class; (name, constants); or a function `(parameters, config)` that returns torch's
            optimizer of one model, or a list of several, alone or with {"max_grad_norm": x}. None: the
            LightningModule's own, else the one that a configuration names, or AdamW.
        schedule: a name or class, (name, constants), or a function `(optimizer, config)` of torch's.

    Raises:
        InvalidArgument: one of them is none of these, or a function of one goes with a name of the other.
    """
    if optimizer is None and lightning:
        return OfLightning()
    clip: Values = {}
    if isinstance(optimizer, tuple) and len(optimizer) == 2 and inspect.isroutine(optimizer[0]):
        optimizer, clip = optimizer
        if unknown := sorted(set(clip) - {"max_grad_norm"}):
            raise InvalidArgument(f"optimizer: {unknown[0]!r} is for its function to set; beside it: max_grad_norm")
    if inspect.isfunction(optimizer) or inspect.ismethod(optimizer):
        return OfTorch(lambda model, config: _called(optimizer, schedule, model, config), **clip)
    if inspect.isfunction(schedule):
        raise InvalidArgument("a function for scheduler goes with a function for optimizer; or name the schedule")
    return Named(optimizer, schedule)


def _called(optimizer: Any, schedule: Any, model: Any, config: Config) -> tuple[Any, Any]:
    made = optimizer(model.parameters(), config)
    each = made if isinstance(made, (list, tuple)) else [made]
    if not each or not all(isinstance(one, torch.optim.Optimizer) for one in each):
        raise InvalidArgument(
            f"optimizer(parameters, config) returned a {type(made).__name__}: return torch's optimizer, or a list of "
            "several, each with parameters of its own"
        )
    one = each[0] if len(each) == 1 else Several(each)
    return one, None if schedule is None else schedule(one, config)


class Several(torch.optim.Optimizer):
    """Torch's optimizers of one model as one, for a schedule of all of their groups."""

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self.optimizers = list(optimizers)
        super().__init__([group for one in optimizers for group in one.param_groups], {})
        self.param_groups = [group for one in optimizers for group in one.param_groups]

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for one in self.optimizers:
            one.step()


class OfLightning(OfTorch):
    """Optimizer and schedule from a LightningModule's `configure_optimizers`."""

    def __init__(self) -> None:
        super().__init__(self._configured)

    def _configured(self, trainee: Any, config: Config) -> tuple[Any, Any]:
        optimizer, schedule = _of_lightning(trainee)
        if isinstance(schedule, Mapping):
            self.every = "batch" if schedule.get("interval") == "step" else "epoch"
            return optimizer, schedule.get("scheduler")
        self.every = "epoch"
        return optimizer, schedule


def _of_lightning(trainee: Any) -> tuple[Any, Any]:
    """Return (optimizer, schedule as the module has it)."""
    found = trainee.model.configure_optimizers()
    schedule = None
    if isinstance(found, Mapping):
        found, schedule = found["optimizer"], found.get("lr_scheduler")
    elif isinstance(found, (list, tuple)):
        found, schedule = _lists(found)
    if not isinstance(found, torch.optim.Optimizer):
        raise InvalidArgument(
            f"{type(trainee.model).__name__}.configure_optimizers returned no single optimizer: give optimizer="
        )
    return found, schedule


def _lists(found: Any) -> tuple[Any, Any]:
    """Return (optimizer, schedule) of `[optimizer]`, or `([optimizer], [schedule])`."""
    pair = len(found) == 2 and all(isinstance(part, (list, tuple)) for part in found)
    optimizers, schedules = found if pair else (found, [])
    return (optimizers[0] if len(optimizers) == 1 else None), (schedules[0] if schedules else None)
