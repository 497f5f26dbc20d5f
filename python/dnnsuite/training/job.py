# SPDX-License-Identifier: MIT
"""A workload as an experiment: `dnnsuite train JOB` has checkpoints, resumes and records as a configuration has.

The batches come in the workload's own order; of several processes each takes its rows of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch.optim import Optimizer, lr_scheduler

from .. import jobs
from .._runs.failures import TookTooLong
from .._runs.interrupts import limited
from ..errors import InvalidArgument, did_you_mean, some_of
from ..jobs import JobConfig, Metric, Workload
from ..jobs.distributed import place_of
from ..jobs.model_parts import optimizers_of, with_names
from ..jobs.workload import MAKES_BATCHES, valued
from .array import ExperimentArray
from .experiment import Experiment
from .loading import Order
from .record import Until
from .schedules import PerEpoch, Schedule
from .sources import Data

_HELD_OUT = 1_000_000  # index of the first batch for validation, where a workload holds none out
_BATCHES = 4  # of a validation, where a workload has no metric
BATCH_TIMEOUT_S = 600.0  # for a batch that the model makes
_LOOKS = 20  # at the metric, of a run to a target
_NOT_SHARED = "job {} makes its batches with the model, which several processes do not share"
_KEYS = ("epochs", "iters_per_epoch", "batch_size", "precision", "seed")


class Trained(torch.nn.Module):
    """A model whose outputs for a batch are its loss and the metric, which is NaN in training: `[2]`.

    Args:
        workload, model: the workload and its plain model.
        rollouts: maker of the training batches, which needs the model; None where they are given.
        apart: held-out batches are other tensors, which have no loss: the metric stands for it, less being better.
        batch_timeout_s: seconds that the model may take to make a batch.
    """

    def __init__(
        self, workload: Workload, model: torch.nn.Module, rollouts: Any = None, apart: bool = False,
        batch_timeout_s: float = BATCH_TIMEOUT_S,
    ) -> None:  # fmt: skip
        super().__init__()
        self.model, self._workload, self._timeout_s = model, workload, batch_timeout_s
        self._rollouts, self._apart, self._made = rollouts, apart, 0

    def forward(self, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        metric, training = self._workload.metric, self.training
        if training and self._rollouts is not None:
            device = next(self.model.parameters()).device
            with limited(self._timeout_s, self._late):
                made = self._rollouts.batch_of(self.model, self._made)
            batch = tuple(x.to(device) for x in made)
            self._made += 1
        if self._apart and not training and metric is not None:
            value = valued(metric.of, metric.of(self.model, *batch), batch)
            return torch.stack([-value if metric.better == "more" else value, value])
        of = self._workload.loss
        loss = valued(of, of(self.model, *batch), batch)  # type: ignore[operator]
        if training or metric is None:
            return torch.stack([loss, torch.full_like(loss, math.nan, requires_grad=False)])
        value = valued(metric.of, metric.of(self.model, *batch), batch)
        return torch.stack([loss, value.to(loss.dtype)])

    def _late(self) -> TookTooLong:
        return TookTooLong(
            f"job {self._workload.name} did not make batch {self._made} within {self._timeout_s:g} s: see its "
            "`rollouts`, or allow more with --batch-timeout"
        )


class _Several(Optimizer):
    """Optimizers of several classes as one, which has their groups and their states."""

    def __init__(self, each: list[Optimizer]) -> None:
        super().__init__([group for one in each for group in one.param_groups], {})
        self._each = each
        self._share()

    def _share(self) -> None:
        """Give each optimizer its groups, and the state of all."""
        groups = iter(self.param_groups)
        for one in self._each:
            one.param_groups = list(itertools.islice(groups, len(one.param_groups)))
            one.state = self.state

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for one in self._each:
            one.step()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._share()


class InOrder(Order):
    """Batches as the workload has them, which mixes its samples itself."""

    def batches(self, epoch: int, start: int = 0) -> Iterator[torch.Tensor]:
        for step in range(start, self.steps):
            yield torch.arange(step * self.batch_size, (step + 1) * self.batch_size)


@dataclass(frozen=True)
class JobExperiment(Experiment):
    """An experiment of a workload."""

    @property
    def order(self) -> Order:
        """The order of its batches: their own."""
        return InOrder(len(self.data.train), self.batch_size, self.seed)


class _Samples:
    """`length` batches for each epoch, of `size` samples each; empty ones where the model makes them."""

    def __init__(self, batches: Any, length: int, size: int, first: int = 0) -> None:
        self._batches, self._length, self._size, self._first = batches, length, size, first
        self.of_model = hasattr(batches, "batch_of")

    def __len__(self) -> int:
        return self._length * self._size

    def __getitem__(self, index: int) -> Any:
        return self.batch([index], 0)

    def batch(self, indices: list[int], epoch: int) -> tuple[Any, torch.Tensor]:
        """Return the tensors of these samples of one batch, and no label."""
        if self.of_model:
            return (), torch.zeros(())
        whole = self._batches.batch(self._first + epoch * self._length + indices[0] // self._size)
        if len(indices) < self._size:
            rows = [index % self._size for index in indices]
            whole = (x[rows] for x in whole)
        return tuple(whole), torch.zeros(len(indices))


class _Metric:
    """The value of a workload's metric, which a batch counts once."""

    def __init__(self, metric: Metric | None) -> None:
        self.names: tuple[str, ...] = (metric.name,) if metric else ()

    def __call__(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return outputs[1 : 1 + len(self.names)].double()


class _BySteps(Schedule):
    """Rates of each step by a workload's `rate`."""

    def __init__(self, workload: Workload, optimizer: Optimizer, steps: int) -> None:
        super().__init__(optimizer)
        self._factor, self._steps = workload.factor, steps

    def begin_step(self, step: int) -> None:
        self._set(self._factor(step, self._steps))


def values_of_job(
    name: str, preset: str, given: Mapping[str, Any], device: str, processes: int = 1
) -> tuple[Workload, dict[str, Any]]:
    """Return the workload of a job, and its keys with their values.

    Args:
        name, preset, given, device: see :func:`experiment_of_job`.
        processes: number of processes that will train it, if this process is not one of them.

    Raises:
        InvalidArgument: the workload trains its parts one after the other, or makes its batches with the model and
            trains in several processes, or a key is unknown.
    """
    from .._runs.words import parse_options

    kind = jobs.get(name)
    if kind.alone not in ("", MAKES_BATCHES):
        raise InvalidArgument(f"train does not take job {name}, which {kind.alone}")
    if kind.alone and max(processes, place_of("all").world_size) > 1:
        raise InvalidArgument(_NOT_SHARED.format(name))
    workload = getattr(kind, "workload", None)
    if not isinstance(workload, Workload):
        raise InvalidArgument(f"job {name} is not a workload, which train needs")
    if not callable(workload.loss):
        raise InvalidArgument(f"job {name} trains {' and '.join(workload.loss)} in turn; train takes jobs of one loss")
    protocol = workload.preset(preset, device)
    length = {key: protocol[key] for key in _KEYS[:3]} | {"precision": "fp32", "seed": 0}
    known = {**length, **workload.hyper, **workload.options, **protocol["options"]}
    if unknown := sorted(set(given) - set(known)):
        hint = did_you_mean(unknown[0], known)
        keys = some_of(sorted(known), f"`dnnsuite train {name} --show`")
        raise InvalidArgument(f"job {name} has no key {unknown[0]!r}{hint}; it has {keys}")
    return workload, {**known, **parse_options([f"{key}={value}" for key, value in given.items()], known, name)}


def experiment_of_job(
    name: str,
    preset: str,
    given: Mapping[str, Any],
    device: str,
    data: str = "auto",
    dataroot: str | None = None,
    until: str | None = None,
    shard: bool = False,
    batch_timeout_s: float | None = None,
) -> JobExperiment:
    """Make the experiment of a workload.

    Args:
        name: name of a job that is a workload.
        preset: quick, default or paper; it decides sizes and length.
        given: values by key: epochs, iters_per_epoch, batch_size, precision, seed, options and hyper-parameters.
        device: cpu or cuda.
        data: source of the data: auto, real or synthetic.
        dataroot: folder with data sets.
        until: `target` to end when the preset's target is reached, or a value of the metric. It is checked about twenty
            times in a run, unless `given` has a length.
        shard: shard the model over the processes.
        batch_timeout_s: seconds that the model of a workload with `rollouts` may take to make a batch; None means 600.

    Raises:
        InvalidArgument: the workload trains its parts one after the other; it makes its batches with the model and has
            no metric or trains in several processes; a key is unknown; or there is no such target.
    """
    workload, values = values_of_job(name, preset, given, device)
    epochs, iters, size = (values[key] for key in _KEYS[:3])
    target = _until(workload, preset, until) if until is not None else None
    if target is not None and not {"epochs", "iters_per_epoch"} & set(given):
        iters = max(1, math.ceil(epochs * iters / _LOOKS))
        epochs = max(1, values["epochs"] * values["iters_per_epoch"] // iters)
    config = JobConfig(
        device="cpu", batch_size=size, seed=values["seed"], data_seed=values["seed"], data=data, dataroot=dataroot
    )
    hyper = {key: values[key] for key in workload.hyper}
    options = {key: values[key] for key in workload.options}
    batches = workload.batches(config, options)
    if shard and values["precision"] == "fp16":
        raise InvalidArgument("--shard trains in fp32 and bf16: the parts of a model do not share a scale of the loss")
    train = _Samples(batches, iters, size)
    if batch_timeout_s is not None and not (train.of_model and 0 < batch_timeout_s < math.inf):
        why = f"{batch_timeout_s:g}: must be a positive number of seconds"
        if not train.of_model:
            why = "is for jobs with `rollouts`: the batches of this one are given"
        raise InvalidArgument(f"--batch-timeout {why}")
    if train.of_model:
        if workload.metric is None:
            raise InvalidArgument(f"job {name} has no measure on held-out data, so an epoch of train would end blind")
        if workload.accumulate > 1:
            raise InvalidArgument(f"job {name} makes its batches with the model, which train does not split: use run")
    options |= batches.sizes
    valid = _validation(workload, config, options, batches)
    apart = train.of_model or len(valid[0][0]) != len(batches.batch(0))
    last = {"epochs": epochs} if workload.rate is not None else {}  # of the others a run may go on for more
    after = workload.after_step
    return JobExperiment(
        name=name,
        model=partial(
            _model, workload, options, hyper, batches if train.of_model else None, apart,
            batch_timeout_s or BATCH_TIMEOUT_S,
        ),
        data=Data(
            train, valid, 0, str(batches.record.get("source", f"the data of {name}")),
            {"train": dict(batches.record), "valid": {}}, "samples",
        ),
        optimizer=partial(_optimizer, workload, hyper),
        schedule=partial(_schedule, workload, hyper, last.get("epochs", 0)),
        clip_norm=workload.clip(options), after_step=partial(_after, after) if after else None,
        accumulate=workload.accumulate, until=target, shard=shard, lines="job",
        save_checkpoints=not train.of_model, loss=_first,
        metrics=_Metric(workload.metric), epochs=epochs, batch_size=size, valid_batch_size=1,
        precision=values["precision"], seed=values["seed"],
        settings={"job": name, **last, **options, **hyper, "batch_size": size}, plan=name,
    )  # fmt: skip


def optimised_job(made: JobExperiment, channels_last: bool, extra: bool, compiled: bool) -> JobExperiment:
    """Return the experiment of a job with these optimisations; `extra` are those of a configuration."""
    return replace(
        made, channels_last=channels_last, compile=compiled, set_to_none=extra, cudnn_benchmark=extra,
        optimizer=partial(made.optimizer, fused=True) if extra else made.optimizer,  # type: ignore[call-arg]
    )  # fmt: skip


def array_of_job(
    name: str,
    preset: str,
    given: Mapping[str, Any],
    device: str,
    seeds: int,
    data: str = "auto",
    dataroot: str | None = None,
    until: str | None = None,
) -> ExperimentArray:
    """Make an array of `seeds` experiments of a workload, with consecutive seeds that start at the one in `given`.

    Each model has the weights, the data and the order of its own seed. The held-out samples are those of the first
    seed.

    Args:
        seeds: number of models.
        name, preset, given, device, data, dataroot, until: see :func:`experiment_of_job`.
    """
    if seeds < 1:
        raise InvalidArgument(f"seeds is {seeds}: must be at least 1")
    workload, values = values_of_job(name, preset, given, device)
    if len(kinds := dict.fromkeys(group.optimizer.name for group in workload.groups())) > 1:
        raise InvalidArgument(f"job {name} trains by {' and '.join(kinds)}, which cannot train as an array: add --B 1")
    if workload.rollouts:
        raise InvalidArgument(f"job {name} {MAKES_BATCHES}: add --B 1 for one seed after the other")
    each = [
        experiment_of_job(name, preset, {**given, "seed": values["seed"] + i}, device, data, dataroot, until)
        for i in range(seeds)
    ]
    valid = each[0].data.valid
    each = [replace(own, data=replace(own.data, valid=valid)) for own in each]
    return ExperimentArray(each, [f"seed {own.seed}" for own in each])


def _until(workload: Workload, preset: str, asked: str) -> Until:
    """Return the target of a preset, or the value that was asked for."""
    metric = workload.metric
    if metric is None:
        raise InvalidArgument(f"job {workload.name} has no measure on held-out data, so there is no target")
    try:
        value = metric.target[preset] if asked == "target" else float(asked)
    except KeyError:
        known = ", ".join(f"{own:g} for {name}" for name, own in metric.target.items()) or "none"
        raise InvalidArgument(
            f"job {workload.name} has no target for the preset {preset} (it has {known}): name a value of "
            f"{metric.name!r} with --until"
        ) from None
    except ValueError:
        raise InvalidArgument(f"--until {asked!r}: accepted are target and a value of {metric.name!r}") from None
    if not math.isfinite(value):
        raise InvalidArgument(f"--until {asked}: a value of {metric.name!r} is finite")
    return Until(metric.name, metric.better, value)


def _after(function: Any, trained: Any) -> None:
    function(trained.model)


def _first(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return outputs[0]


def _validation(workload: Workload, config: JobConfig, options: Any, batches: Any) -> _Samples:
    """Batches for validation, a sample each."""
    if workload.held_out is None or workload.metric is None:
        return _Samples(batches, _BATCHES, 1, _HELD_OUT)
    return _Samples(workload.batches(config, options, True), workload.metric.count(config.batch_size), 1)


def _model(workload: Workload, options: Any, hyper: Any, *more: Any) -> Trained:
    return Trained(workload, with_names(workload.model(options, hyper)), *more)


def _optimizer(workload: Workload, hyper: Any, parameters: Iterable[Any], fused: bool = False) -> Optimizer:
    each = optimizers_of(workload, hyper, parameters, fused)
    return each[0] if len(each) == 1 else _Several(each)


def _schedule(workload: Workload, hyper: Any, epochs: int, optimizer: Optimizer, steps: int) -> Schedule:
    made = workload.schedule
    if workload.rate is None and made is not None:
        return PerEpoch(made.make(made.kind(lr_scheduler), optimizer, hyper))
    return _BySteps(workload, optimizer, epochs * steps)
