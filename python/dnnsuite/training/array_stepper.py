# SPDX-License-Identifier: MIT
"""One step of an array of experiments: B models at once, each with its own optimizer settings and schedule; and its
speedup over its models one at a time, for which one of them takes a few steps alone after an epoch.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .. import nn, timing
from .._fuse import fuse, run_in_a_loop, stack, unstack
from .._seeds import seed_all
from .._step import StepRunner
from .._torch import mark_stepped
from ..errors import InvalidArgument
from ..optim import ArrayOptimizer, GradScaler
from .array import ExperimentArray
from .experiment import Experiment
from .loading import Batch, Fed, Share
from .processes import Processes
from .saver import random_state, set_random_state
from .stepper import Phases, Results, Stepper, autocast_of, catch_up, load_rows, placed


class _Member:
    """A model of the array as it would be alone: its optimizer of torch, which its schedule drives.

    The parameters of that optimizer are empty; the array's optimizer takes the learning rate, and whatever else the
    schedule changes, from it.
    """

    def __init__(self, number: int, experiment: Experiment, model: torch.nn.Module) -> None:
        self.number = number
        self.optimizer = experiment.optimizer(model.parameters())
        self.schedule = experiment.schedule(self.optimizer, experiment.order.steps)
        mark_stepped(self.optimizer)  # the array steps for it, before the schedule does

    def parameters(self) -> list[torch.nn.Parameter]:
        """Parameters in the order of the optimizer."""
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def values(self, group: int, name: str) -> Any:
        """Return a hyper-parameter of a group."""
        return self.optimizer.param_groups[group][name]

    def state(self) -> dict[str, Any]:
        """State in a checkpoint besides the array's own."""
        groups = self.optimizer.state_dict()["param_groups"]
        return {"param_groups": groups, "schedule": self.schedule.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state`."""
        self.optimizer.load_state_dict({"state": {}, "param_groups": state["param_groups"]})
        self.schedule.load_state_dict(state["schedule"])


class ArrayStepper:
    """The models of an :class:`ExperimentArray` as one fused array.

    Attributes:
        model: the array.
        numbers: numbers of the models that it still has; model `numbers[slot]` is in slot `slot`.

    Raises:
        InvalidArgument: the models are not of one architecture, the optimizer has no counterpart for arrays, or there
            are several processes.
    """

    def __init__(self, experiment: ExperimentArray, processes: Processes) -> None:
        if processes.world_size > 1:
            raise InvalidArgument("an array trains in one process: start it without torchrun or srun")
        self._experiment, self._device = experiment.first, processes.device
        self.numbers = list(range(experiment.B))
        models = [_made(each, self._device) for each in experiment.experiments]
        self._members = [
            _Member(i, each, model) for i, (each, model) in enumerate(zip(experiment.experiments, models, strict=True))
        ]
        self.model = fuse(models, seeds=[each.seed for each in experiment.experiments])
        params = _in_order(self.model, models[0], self._members[0].parameters())
        clip = self._experiment.clip_norm
        more = {} if clip is None else {"max_grad_norm": clip}
        self.optimizer = ArrayOptimizer.from_models([each.optimizer for each in self._members], params, **more)
        for model in models:
            _empty(model)
        low = self._experiment.precision == "fp16"
        self.scaler = GradScaler(self._device, enabled=low, B=experiment.B)
        self._autocast = autocast_of(self._experiment, self._device)
        self._followed: dict[tuple[int, str], list[Any]] = {}
        if self._experiment.cudnn_benchmark and self._device.type == "cuda":
            torch.backends.cudnn.benchmark = True
        seed_all(self._experiment.seed)
        self._runner = StepRunner(
            self.model,
            self.optimizer,
            self._losses,
            width=1 if self._device.type == "cpu" else None,  # a width that is searched for may cost the same bits
            scaler=self.scaler if low else None,
            accumulate=self._experiment.accumulate,
        )

    def _losses(
        self, array: torch.nn.Module, inputs: torch.Tensor, labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Losses `[b]` and counts of the metrics `[b, n]` of the models in `array`."""
        with self._autocast:
            outputs = unstack(array(inputs))
            own = list(zip(outputs, unstack(labels), strict=True))
            losses = torch.stack([self._experiment.loss(each, right) for each, right in own])
        with torch.no_grad():
            counts = torch.stack([self._experiment.metrics(each.detach(), right) for each, right in own])
        return losses, counts

    def place(self, batches: Mapping[int, Batch]) -> Batch:
        """Return the models' batches as one `[B, N, ...]` on the device; one that all share is not copied."""
        own = [batches[number] for number in self.numbers]
        on_device = {id(each): placed(each, self._device, torch.contiguous_format) for each in own}
        if len(on_device) == 1:
            return _stacked([*on_device.values()] * len(own), shared=True)
        return _stacked([on_device[id(each)] for each in own], shared=False)

    def begin_epoch(self, epoch: int) -> None:
        """Set each model's learning rate of an epoch."""
        for each in self._members:
            each.schedule.begin_epoch(epoch)
        self._follow()

    def begin_step(self, step: int) -> None:
        """Set each model's learning rate of a step."""
        for each in self._members:
            each.schedule.begin_step(step)
        self._follow()

    def end_epoch(self, epoch: int, valid_losses: Sequence[float]) -> None:
        """Tell each model's schedule of its validation."""
        for each, loss in zip(self._members, valid_losses, strict=True):
            each.schedule.end_epoch(epoch, loss)
        self._follow()

    def _follow(self) -> None:
        """Give the array's optimizer the hyper-parameters that the schedules have changed."""
        pairs = self.optimizer.pairs
        in_pairs = {name for names in pairs.values() for name in names}
        names = [*(name for name in self.optimizer.per_model if name not in in_pairs), *pairs]
        for place, group in enumerate(self.optimizer.param_groups):
            for name in names:
                values = [each.values(place, name) for each in self._members]
                if self._followed.get((place, name)) != values:
                    self._followed[place, name] = values
                    group[name] = tuple(zip(*values, strict=True)) if name in pairs else values

    def learning_rates(self) -> list[float]:
        """Return the learning rate of each model."""
        return [float(each.values(0, "lr")) for each in self._members]

    def train(self, inputs: torch.Tensor, labels: torch.Tensor, share: Share, phases: Phases) -> Results:
        """Ask for one step of all models.

        Args:
            inputs, labels: batch `[B, N, ...]` on the device.
            share: part of the batch that this process has.
            phases: clocks of the step's phases.

        Returns:
            A function that waits for the step: mean losses `[B]`, counts of the metrics `[B, n]`.
        """
        with phases.compute:
            step = self._runner.step(inputs, labels)
            if phases.on or self._experiment.after_step is not None:
                self._runner.synchronize()
        if self._experiment.after_step is not None:
            with torch.no_grad():
                self._experiment.after_step(self.model)
        return lambda: (step.losses(), step.figures())

    @torch.no_grad()
    def validate(self, inputs: torch.Tensor, labels: torch.Tensor) -> Results:
        """Return (mean losses `[B]`, counts of the metrics `[B, n]`), in the precision of training."""
        run_in_a_loop(self.model, False)  # which is faster is not asked: the bits would depend on it
        found = self._losses(self.model, inputs, labels)
        return lambda: found

    def finite(self) -> list[bool]:
        """True if every parameter and buffer is finite, of each model."""
        values = [*self.model.parameters(), *self.model.buffers()]
        checks = [each.isfinite().reshape(len(each), -1).all(1) for each in values if each.is_floating_point()]
        return torch.stack(checks).all(0).tolist() if checks else [True] * len(self.numbers)

    def drop(self, slots: Iterable[int]) -> None:
        """Take models out of the array."""
        gone = set(slots)
        if not gone:
            return
        companions = [self.optimizer, *([self.scaler] if self.scaler.is_enabled() else [])]
        self.model.drop(gone, *companions)
        self._members = [each for slot, each in enumerate(self._members) if slot not in gone]
        self.numbers = [each.number for each in self._members]
        self._followed.clear()

    def state(self) -> dict[str, Any]:
        """Return the array's state, as its checkpoint holds it."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "streams": nn.get_rng_state(self.model),
            "members": [each.state() for each in self._members],
        }

    def load(self, state: dict[str, Any], losses: Mapping[int, Sequence[float]] | None = None) -> None:
        """Continue from :meth:`state`, of as many models; `losses` as for one model."""
        self.model.load_state_dict(state["model"])
        self.scaler.load_state_dict(state["scaler"])
        nn.set_rng_state(self.model, state["streams"])
        if losses is None:
            self.optimizer.load_state_dict(state["optimizer"])
        else:
            load_rows(self.optimizer, state["optimizer"])
        for each, own in zip(self._members, state["members"], strict=True):
            if losses is None:
                each.load(own)
            else:
                catch_up(each.schedule, losses[each.number])
        self._followed.clear()

    def model_state(self, slot: int) -> dict[str, Any]:
        """State of one model, as a checkpoint of a run of that model alone holds it."""
        own = self._members[slot]
        model = {name: _copy(value) for name, value in self.model.model_state_dict(slot).items()}
        optimizer = self.optimizer.to_model(slot, own.parameters()).state_dict()
        groups = own.optimizer.state_dict()["param_groups"]
        return {
            "model": model,
            "optimizer": {**optimizer, "param_groups": groups},
            "scaler": self._scaler_state(slot),
            "schedule": own.schedule.state_dict(),
        }

    def _scaler_state(self, slot: int) -> dict[str, Any]:
        """State of torch's scaler of one model."""
        if not self.scaler.is_enabled():
            return {}
        vectors = self.scaler.state_dict()
        counts = {"growth_interval": "growth_interval", "growth_tracker": "_growth_tracker"}
        factors = ("scale", "growth_factor", "backoff_factor")
        return {name: float(vectors[name][slot]) for name in factors} | {
            theirs: int(vectors[name][slot]) for name, theirs in counts.items()
        }

    @property
    def audits_passed(self) -> int:
        """Number of replayed steps that were run both ways, and left the same bits."""
        return self._runner.audits_passed

    def close(self) -> None:
        """End the threads that steps ran in."""
        self._runner.close()


def _made(experiment: Experiment, device: torch.device) -> torch.nn.Module:
    seed_all(experiment.seed)
    return experiment.model().to(device)


def _stacked(batches: Sequence[Any], shared: bool) -> Any:
    """Stack the models' tensors, also those in tuples; what all share is not copied."""
    if isinstance(batches[0], tuple):
        return tuple(_stacked(own, shared) for own in zip(*batches, strict=True))
    return stack(batches[0], B=len(batches)) if shared else torch.stack(list(batches))


def _in_order(
    array: torch.nn.Module, model: torch.nn.Module, wanted: Sequence[torch.nn.Parameter]
) -> list[torch.nn.Parameter]:
    """Return the array's parameters in the order of an optimizer's of one of its models."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    own = dict(array.named_parameters())
    return [own[names[id(parameter)]] for parameter in wanted]


@torch.no_grad()
def _empty(model: torch.nn.Module) -> None:
    """Free the memory of a model that the array has copied."""
    for tensor in [*model.parameters(), *model.buffers()]:
        tensor.data = tensor.data.new_empty(0)


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


_UNTIMED = 1  # steps that begin a measurement
STEPS = _UNTIMED + 4
_ENOUGH = 3  # measurements, after which they take at most one part in so many of the time:
_SHARE = 100


@dataclass(frozen=True)
class Speedup:
    """Ratio of an array's items per second to those of models alone; `low` and `high` bound a 95 % interval."""

    value: float
    low: float | None
    high: float | None


def speedup(pairs: Iterable[tuple[float, float]]) -> Speedup | None:
    """Return the speedup from pairs of seconds per item, alone and in the array; None without any."""
    pairs = list(pairs)
    if not pairs:
        return None
    alone, array = ([pair[k] for pair in pairs] for k in range(2))
    if len(pairs) < _ENOUGH:  # an interval would span all that there is
        return Speedup(statistics.fmean(alone) / statistics.fmean(array), None, None)
    found = timing.compare(alone, array)
    return Speedup(found.ratio, found.low, found.high)


class Alone:
    """A model of an array, trained by itself for a few steps now and then, with a learning rate of 0.

    Attributes:
        pairs: (seconds per item alone, in the array) of each measurement.
        seconds: seconds that all of them took.
    """

    def __init__(self, experiment: Experiment, processes: Processes) -> None:
        self._experiment, self._processes = experiment, processes
        self._stepper: Stepper | None = None
        self.pairs: list[tuple[float, float]] = []
        self.seconds = 0.0

    def due(self, trained_s: float) -> bool:
        """Return True if a measurement is worth its time after `trained_s` seconds of training."""
        return len(self.pairs) < _ENOUGH or self.seconds < trained_s / _SHARE

    def measure(self, batches: Iterable[Fed], array_s: float) -> None:
        """Take steps on these batches; `array_s` is the time of an item in the array meanwhile."""
        began_s = time.perf_counter()
        before = random_state(self._processes.device)
        try:
            took_s = self._per_item_s(batches)
        finally:
            set_random_state(before, self._processes.device)
            self.seconds += time.perf_counter() - began_s
        if took_s is not None:
            self.pairs.append((took_s, array_s))

    def _per_item_s(self, batches: Iterable[Fed]) -> float | None:
        if self._stepper is None:
            self._stepper = Stepper(self._experiment, self._processes)
            for group in self._stepper.optimizer.param_groups:
                group["lr"] = 0.0  # it stays as it began, however long the run is
        self._stepper.model.train()
        items, began_s = 0, 0.0
        for i, (share, batch) in enumerate(batches):
            if i == _UNTIMED:
                began_s = self._now_s()
            inputs, labels = self._stepper.place(batch)
            self._stepper.train(inputs, labels, share, _NO_PHASES)
            items += share.whole if i >= _UNTIMED else 0
        return (self._now_s() - began_s) / items if items else None

    def _now_s(self) -> float:
        if self._processes.device.type == "cuda":
            torch.cuda.synchronize(self._processes.device)
        return time.perf_counter()


_NO_PHASES = Phases(0)
