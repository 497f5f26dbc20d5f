# SPDX-License-Identifier: MIT
"""The making of a trial's model and optimizer from its configuration, and the groups that can share an array."""

from __future__ import annotations

import contextlib
import copy
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .._fuse import fuse
from .._seeds import seeded
from ..adapters.base import SharedBase
from ..adapters.configs import configs_in, ranked_parts, refuse_written_base, take_configs
from ..adapters.divided import is_part
from ..errors import InvalidArgument
from .feeds import Feeds
from .optimizers import Named, OfTorch, Optimization, chosen_optimization
from .space import Config, WatchedConfig, alike
from .trainee import Loss, Measure, Trainee, check_lightning, default_loss, default_measure, is_lightning
from .trial import Groups, Trial

_SMALL_BYTES = 2**22  # of parameters: a model that is kept from its first look to its start
_DROPOUTS = (torch.nn.Dropout, torch.nn.Dropout1d, torch.nn.Dropout2d, torch.nn.Dropout3d)
_MOST_BUILT = 64  # of them


class Recipe:
    """Recipe for trials: how they are made and trained.

    Args:
        make_model: configuration → a plain torch module.
        feeds: the training data of each trial.
        optimizer, schedule: see `chosen_optimization`.
        loss: (model, *batch) → the loss `[]` of one model.
        measure: (model, *batch) → measures of one model by name, means over the batch.
        device, autocast: device and half precision to train in.
        schedule_every: epoch or batch, after which the schedule moves; None for what is usual for its class.
        base: a module that all models are made over; `make_model` then takes (configuration, base).
        after_step: function of the model, or the array of them, after each step, without gradients.
        accumulate: number of equal parts of a batch whose gradients are added up before a step.
    """

    own = frozenset(("batch_size",))  #: values of a configuration that the data read
    kind: Any = None  #: class of its arrays, where they are no ordinary ones

    def __init__(
        self,
        make_model: Callable[..., torch.nn.Module],
        feeds: Feeds,
        optimizer: Any = None,
        schedule: Any = None,
        loss: Loss | None = None,
        measure: Measure | None = None,
        device: str = "cpu",
        autocast: torch.dtype | None = None,
        schedule_every: str | None = None,
        base: torch.nn.Module | None = None,
        after_step: Callable[[Any], None] | None = None,
        accumulate: int = 1,
    ) -> None:
        if base is not None and not isinstance(base, torch.nn.Module):
            raise InvalidArgument(f"base is a {type(base).__name__}: give a torch module, which make_model takes, too")
        if base is not None and any(is_part(parameter) for parameter in base.parameters()):
            raise InvalidArgument(
                "the base is divided over processes (fully_shard), and in each of them a sweep would go its own way by "
                "its own times: give a base that is not divided, or train the configurations with dnnsuite.adapt"
            )
        self._base = None if base is None else SharedBase(base)
        if schedule_every not in (None, "epoch", "batch"):
            raise InvalidArgument(f"scheduler_every is {schedule_every!r}: give 'epoch' or 'batch'")
        self._schedule_every = schedule_every
        self.after_step, self.accumulate = after_step, accumulate
        self.make_model, self.feeds, self.device = make_model, feeds, device
        self._asked = optimizer, schedule
        self.loss = _uncopied(loss or default_loss)
        self._measure = _uncopied(measure or (default_measure if loss is None else _measure_of(self.loss)))
        if autocast is not None and not isinstance(autocast, torch.dtype):
            raise InvalidArgument(f"autocast is {autocast!r}: give a type of torch's, e.g. torch.bfloat16")
        self._autocast = autocast
        self.optimization: Optimization | None = None  # of a LightningModule: known once there is a model
        if optimizer is not None:
            self.optimization = chosen_optimization(optimizer, schedule, lightning=False)
        self.read: set[str] = set()  # names that make_model reads
        self.groups = Groups()
        self._shapes: dict[Any, list[tuple[Any, torch.nn.Module]]] = {}
        self._built: dict[int, tuple[Config, Trainee]] = {}

    def epochs_of(self, trial: Trial) -> int | None:
        """Epochs of a trial's own; None for those of all."""
        return None

    def lent_autocast(self) -> contextlib.AbstractContextManager[Any]:
        """torch.autocast if a half precision was asked for."""
        if self._autocast is None:
            return contextlib.nullcontext()
        return torch.autocast(torch.device(self.device).type, dtype=self._autocast)

    def steps_by_batch(self, schedule: Any) -> bool:
        """True if the schedule moves after each batch."""
        if self._schedule_every is not None:
            return self._schedule_every == "batch"
        return self.optimization is not None and self.optimization.steps_by_batch(schedule)

    def build(self, trial: Trial) -> Trainee:
        """Return a trial's model as it starts, in training."""
        known = self._built.pop(trial.number, None)
        if known is not None and alike(known[0], trial.config):  # a process that was forked has those of before
            return known[1]
        config = WatchedConfig(trial.config)
        with seeded(trial.seed):
            model = self._made(config, trial)
        self.read |= config.read
        if self.optimization is None:
            if is_lightning(model):
                check_lightning(model)
            self.optimization = chosen_optimization(*self._asked, lightning=is_lightning(model))
        return Trainee(model.to(self.device), self.loss, self._measure)

    def fitting(self, trials: Sequence[Trial]) -> int | None:
        """Number of models like these that fit into memory at once; None where that is found as they train."""
        return None

    def names_of_base(self, trainee: Trainee) -> frozenset[str]:
        """Names of the tensors that a model has from the base, which is there wherever a trial continues."""
        return frozenset() if self._base is None else self._base.names_in(trainee)

    def rebuild(self, trial: Trial) -> torch.nn.Module:
        """Return the model of a trial's best configuration as it starts, with memory of its own."""
        built: Any = self.build(Trial(trial.number, dict(trial.best_config), trial.seed))
        model: torch.nn.Module = built.model if isinstance(built, Trainee) else built
        return model if self._base is None else copy.deepcopy(model)

    def _made(self, config: WatchedConfig, trial: Trial) -> torch.nn.Module:
        def make(*base: torch.nn.Module) -> torch.nn.Module:
            model = self.make_model(config, *base)
            if not isinstance(model, torch.nn.Module):
                raise InvalidArgument(
                    f"make_model returned a {type(model).__name__} for {dict(trial.config)}: return a model"
                )
            return model

        if self._base is None:
            return make()
        model = self._base.model(lambda own: make(own.requires_grad_(False)))
        refuse_written_base(model)
        return model

    def admit(self, trial: Trial) -> None:
        """Find the group of a trial that begins: those of a group can be in one array."""
        self._built.pop(trial.number, None)  # of values that it had before
        trainee = self.build(trial)
        feed = self.feeds.of(trial.number, trial.config)
        signature, place = self._shape(trainee)
        assert self.optimization is not None  # build has found it
        kind = signature, self.optimization.kind(trainee, trial.config)
        trial.group = self.groups.of(feed.key, kind, place, trainee, trial)
        trial.trained_bytes = sum(p.numel() * p.element_size() for p in trainee.parameters() if p.requires_grad)
        small = sum(p.numel() * p.element_size() for p in trainee.parameters()) < _SMALL_BYTES
        if small and len(self._built) < _MOST_BUILT:
            self._built[trial.number] = dict(trial.config), trainee

    def fits(self, source: Config, config: Config) -> bool:
        """True if a trial of `config` can continue from the state of one of `source`: shapes and kind of optimizer."""
        names = [name for name in config if not alike(source.get(name), config[name])]
        if isinstance(self.optimization, Named) and not {*self.read, *Named.NAMES}.intersection(names):
            return True  # no model differs by what none reads
        try:
            return bool(self._state_kind(source) == self._state_kind(config))
        except Exception:  # as of values that make no model: the trial's own failure, which it tells when it begins
            return True

    def _state_kind(self, config: Config) -> Any:
        trainee = self.build(Trial(-1, dict(config), 0))
        assert self.optimization is not None
        shapes = {
            name: (tuple(value.shape), value.dtype)
            for name, value in trainee.state_dict().items()
            if isinstance(value, torch.Tensor)
        }
        return shapes, self.optimization.kind(trainee, config)

    def given(self, trial: Trial, taken: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """Tensors that a copy has from its own configuration, as a temperature in a buffer, among those it took over.

        They are no weights, training has not changed them, and the configuration of the source gave them other values.
        """
        assert trial.source is not None
        config, seed = trial.source
        if not any(name in self.read and not alike(config.get(name), value) for name, value in trial.config.items()):
            return {}
        own, theirs = (self.build(Trial(-1, dict(values), seed)) for values in (trial.config, config))
        learned = {name for name, parameter in own.named_parameters() if parameter.requires_grad}
        before = theirs.state_dict()
        return {
            name: value
            for name, value in own.state_dict().items()
            if isinstance(value, torch.Tensor) and name not in learned and name in taken
            if not alike(value, before[name]) and alike(before[name].cpu(), taken[name])
        }

    def _shape(self, trainee: Trainee) -> tuple[Any, int]:
        """Return (signature of the model's shapes, which of those that have it but cannot be fused)."""
        signature = _signature(trainee)
        details = tuple((name, _told(part)) for name, part in trainee.named_modules())
        known = self._shapes.setdefault(signature, [])
        for place, (seen, like) in enumerate(known):
            if details in seen or _can_fuse(like, trainee):
                seen.add(details)
                return signature, place
        known.append(({details}, _copied(trainee) if len(known) < 64 else trainee))
        return signature, len(known) - 1

    def refuse_unread(self, configs: Sequence[Config], known: set[str]) -> None:
        """Refuse values that differ between trials and that nothing reads.

        Raises:
            InvalidArgument: make_model ignores its configuration; the message says what it reads.
        """
        names = sorted({name for config in configs for name in config})
        taken = self.read | (self.optimization.taken(configs) if self.optimization else set()) | known
        unread = [name for name in names if name not in taken]
        differing = [name for name in unread if any(not alike(c.get(name), configs[0].get(name)) for c in configs)]
        if differing and not isinstance(self.optimization, OfTorch):
            read = ", ".join(sorted(self.read & set(names))) or "nothing"
            taken_by_optimizer = ", ".join(sorted(set(names) & taken - self.read)) or "nothing"
            way = next((said for word, said in _WAYS.items() if word in differing[0]), "")
            raise InvalidArgument(
                f"{differing[0]!r} varies between trials, but nothing uses it: make_model reads {read}, the optimizer "
                f"{taken_by_optimizer}{way}"
            )


_WAYS = {
    "clip": ". The norm of gradients is clipped by max_grad_norm",
    "optim": ". To choose the optimizer by trial, leave optimizer out, or give optimizer=lambda p, config: ...",
    "sched": ". To choose the schedule by trial, give scheduler=lambda optimizer, config: ...",
    "rate": ". The optimizer's learning rate is lr",
}  # by a part of the name


def _uncopied(code: Any) -> Any:
    """Return a function that stays the same object in copies of a model, as a bound method, whose object is copied,
    does not.

    Otherwise a model that comes into an array later would differ from those in it as soon as that object changes.
    """
    if isinstance(code, (types.FunctionType, torch.nn.Module)):
        return code

    def call(model: Any, *batch: Any) -> Any:
        return code(model, *batch)

    return call


def _measure_of(loss: Loss) -> Measure:
    def measure(model: Any, *batch: Any) -> dict[str, torch.Tensor]:
        return {"loss": loss(model, *batch)}

    return measure


def _signature(trainee: torch.nn.Module) -> Any:
    """Signature that models must share to be worth fusing: classes, shapes, and attributes that choose code."""
    found = []
    ranked = ranked_parts(trainee)
    for name, part in trainee.named_modules():
        shapes: list[Any] = [(n, None if t is None else tuple(t.shape), None if t is None else t.dtype)
                  for held in (part._parameters, part._buffers) for n, t in held.items()]  # fmt: skip
        chosen = [(n, v) for n, v in vars(part).items() if isinstance(v, (str, bool)) and n != "training"]
        kind = f"{type(part).__module__}.{type(part).__qualname__}"
        if part in ranked:  # which an array pads
            shapes = [(n, None if shape is None else len(shape), dtype) for n, shape, dtype in shapes]
            if isinstance(part, (torch.nn.Dropout, torch.nn.Identity)):  # of a rate of its own
                kind, chosen = "dropout", []
        found.append((name, kind, tuple(shapes), tuple(sorted(chosen))))
    return tuple(found)


def _told(part: torch.nn.Module) -> str:
    """Settings of a layer as it prints them, without those that may differ between the models of an array."""
    if type(part) in _DROPOUTS:
        return f"inplace={part.inplace}"
    return part.extra_repr()


def _copied(trainee: Trainee) -> Trainee:
    """Copy a model, but not what it has frozen."""
    return copy.deepcopy(trainee, {id(p): p for p in trainee.parameters() if not p.requires_grad})


def _can_fuse(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    own = configs_in(other)
    take_configs(other, configs_in(one))
    try:
        fuse([one, other], seeds=[0, 1])
    except InvalidArgument:
        return False
    finally:
        take_configs(other, own)
    return True
