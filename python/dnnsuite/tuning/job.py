# SPDX-License-Identifier: MIT
"""A declared workload as what a sweep takes: models, batches, held-out samples, loss, optimizer and schedule."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch

from .. import data, jobs
from ..errors import InvalidArgument, did_you_mean, some_of
from ..jobs import JobConfig, Made, Workload
from ..jobs.model_parts import optimizers_of, with_names
from ..jobs.workload import valued
from .jobs_space import space_of
from .space import Config, Range

_VERSIONS = {"v2": "mobilenet_v2", "v3s": "mobilenet_v3_small", "v3l": "mobilenet_v3_large"}
# Batches of a job that nothing was drawn from. They are not in the job, whose content tells searches apart.
_LOADED: WeakKeyDictionary[JobSweep, dict[tuple[int, bool], Any]] = WeakKeyDictionary()
_HELD_OUT = 1_000_000  # index of the first batch for validation, where a job holds no samples out


class Epochs:
    """Batches of a workload, `length` for an epoch; epoch e begins where e - 1 has ended."""

    def __init__(self, batches: Any, batch_size: int, length: int, first: int = 0) -> None:
        self._batches, self.batch_size, self._length, self._first = batches, batch_size, length, first
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Begin here at the next iteration."""
        self._epoch = epoch

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        begin = self._first + self._epoch * self._length
        return (tuple(self._batches.batch(begin + i)) for i in range(self._length))


class JobSweep:
    """Arguments of `dnnsuite.sweep` for a declared workload: `sweep(space=..., epochs=3, **job.arguments(3))`.

    Args:
        name: name of a job that was made with `jobs.declare`.
        preset: preset for its sizes, batch size and iterations per epoch.
        device: cpu or cuda.
        options: options of the job, for example `{"width_mult": 0.5}`.
        source, dataroot: the data, like `--data` and `--dataroot` of commands.
        iters_per_epoch, batch_size: values that replace those of the preset.
        seed: seed of the batches.

    Raises:
        InvalidArgument: there is no such job; the message names those that exist.
    """

    def __init__(
        self, name: str, preset: str = "default", device: str = "cpu", options: Mapping[str, Any] | None = None,
        source: str = "auto", dataroot: str | None = None, iters_per_epoch: int | None = None,
        batch_size: int | None = None, seed: int = 0,
    ) -> None:  # fmt: skip
        self.workload, options = _workload(name), options or {}
        self._protocol = self.workload.preset(preset, device)
        self._options = {**self.workload.options, **self._protocol["options"], **options}
        if unknown := sorted(set(options) - set(self.workload.options)):
            hint = did_you_mean(unknown[0], self.workload.options)
            raise InvalidArgument(
                f"job {name} has no option {unknown[0]!r}{hint}; it has {', '.join(self.workload.options)}"
            )
        self._config = JobConfig(device=device, data=source, dataroot=dataroot, data_seed=seed)
        self.batch_size = batch_size or self._protocol["batch_size"]
        self.iters_per_epoch = iters_per_epoch or self._protocol["iters_per_epoch"]
        self._loaded: dict[int, Any] = {}
        self._epochs: dict[int, Epochs] = {}
        self._apart = False  # True where held-out batches are other tensors than those of training

    def _batches(self, batch_size: int) -> Any:
        """Batches to train on."""
        if batch_size not in self._loaded:
            found = self._load(batch_size)
            self._options.update(found.sizes)
            self._loaded[batch_size] = found
        return self._loaded[batch_size]

    def _load(self, batch_size: int, held_out: bool = False) -> Any:
        """Load samples once for all searches; batches of them keep what was drawn, and are each search's own."""
        known = _LOADED.setdefault(self, {})
        found = known[batch_size, held_out].again() if (batch_size, held_out) in known else None
        if found is None:
            config = dataclasses.replace(self._config, batch_size=batch_size)
            found = self.workload.batches(config, self._options, held_out)
            if hasattr(found, "again") and (untouched := found.again()) is not None:
                known[batch_size, held_out] = untouched
        return found

    def model(self, config: Config) -> torch.nn.Module:
        """Return the plain model of a configuration, whose names are options and hyper-parameters of the job."""
        self._batches(self.batch_size)  # some sizes are the data's
        own = {name: config.get(name, value) for name, value in self._options.items()}
        if "version" in config:
            return self._mobilenet(config["version"], own)
        return with_names(self.workload.model(own, {**self.workload.hyper, **config}))

    def _mobilenet(self, version: str, own: Mapping[str, Any]) -> torch.nn.Module:
        if version not in _VERSIONS:
            hint = did_you_mean(str(version), _VERSIONS)
            raise InvalidArgument(f"version {version!r} is none of {', '.join(_VERSIONS)}{hint}")
        make = getattr(data.import_torchvision().models, _VERSIONS[version])
        model: torch.nn.Module = make(num_classes=data.small_images.CLASSES, width_mult=own["width_mult"])
        return model

    def train(self, config: Config) -> Epochs:
        """Return the batches of a trial."""
        size = int(config.get("batch_size", self.batch_size))
        if size not in self._epochs:
            self._epochs[size] = Epochs(self._batches(size), size, self.iters_per_epoch)
        return self._epochs[size]

    def held_out(self, count: int = 4) -> Epochs:
        """Return batches that no trial trains on: the job's held-out samples, or else batches other than those of
        training."""
        size = min(max(self.batch_size, 64), 256)
        if self.workload.held_out is None:
            return Epochs(self._batches(size), size, count, _HELD_OUT)
        trained = self._batches(self.batch_size).batch(0)
        found = self._load(size, held_out=True)
        self._apart = len(found.batch(0)) != len(trained)
        return Epochs(found, size, count)

    def space(self, preset: str, seed: int, count: int) -> dict[str, Range] | list[dict[str, Any]]:
        """Return the job's ranges, or configurations drawn by its own sampler."""
        return space_of(self.workload, preset, seed, count)

    def arguments(self, epochs: int) -> dict[str, Any]:
        """Return the arguments of `dnnsuite.sweep` for trials of at most `epochs` epochs."""
        self._loaded, self._epochs = {}, {}
        self._batches(self.batch_size)
        by_rate = partial(_factor, self.workload, epochs * self.iters_per_epoch)
        by_rate = self._schedule(Made("LambdaLR", {"lr_lambda": by_rate}))
        by_steps = {"scheduler": by_rate, "scheduler_every": "batch"}
        return {
            "make_model": self.model, "train": self.train, "evaluate": self.held_out(), "loss": self.loss,
            "measure": self.measure, "optimizer": self.optimizer, "scheduler": self.scheduler,
            "batch_size": self.batch_size, **({} if self.workload.rate is None else by_steps),
            "after_step": self.workload.after_step, "accumulate": self.workload.accumulate,
        }  # fmt: skip

    @property
    def metric(self) -> str:
        """Name of the workload's metric, `acc` for an accuracy; `loss` if it has none."""
        found = self.workload.metric
        if found is None:
            return "loss"
        return "acc" if found.name == "accuracy" else found.name.replace(" ", "_")

    @property
    def goal(self) -> str:
        """`max` if a larger metric is better, else `min`."""
        return "max" if self.workload.metric and self.workload.metric.better == "more" else "min"

    def check_metric(self, name: str | None) -> None:
        """Refuse a metric that no trial of the job will have.

        Raises:
            InvalidArgument: there is no such metric; the message names those that exist.
        """
        known = tuple(dict.fromkeys(("loss", self.metric, "train_loss")))
        if name is not None and name.removeprefix("val_") not in known:
            raise InvalidArgument(
                f"--metric {name}: job {self.workload.name} has {some_of(known)}{did_you_mean(name, known)}"
            )

    @property
    def optimizer(self) -> tuple[Any, dict[str, Any]]:
        """The optimizer, as a name or a function that makes one with several groups, and its constants. Values of a
        configuration have the names of its arguments."""
        clip = self.workload.clip(self._options)
        more = {} if clip is None else {"max_grad_norm": clip}
        if len(self.workload.groups()) > 1:
            return self._of_groups, more
        made = self.workload.groups()[0].optimizer
        return made.name, {**made.filled(self.workload.hyper), **more}

    def _of_groups(self, parameters: Any, config: Config) -> torch.optim.Optimizer:
        (found,) = optimizers_of(self.workload, {**self.workload.hyper, **config}, parameters)
        return found

    @property
    def scheduler(self) -> Any:
        """The schedule: a name and constants, or a function that returns one of torch's; None if the job has none."""
        return None if self.workload.schedule is None else self._schedule(self.workload.schedule)

    def _schedule(self, made: Made) -> Any:
        if len(self.workload.groups()) > 1:
            return partial(_torchs, made, self.workload.hyper)
        return made.name, made.filled(self.workload.hyper)

    def loss(self, model: Any, *batch: Any) -> torch.Tensor:
        """Return the loss `[]` of one model."""
        of = self.workload.loss
        found: torch.Tensor = valued(of, of(model, *batch), batch)  # type: ignore[operator]
        return found

    def measure(self, model: Any, *batch: Any) -> dict[str, torch.Tensor]:
        """Return the job's metric if it has one, and `loss` if held-out batches have as many tensors as training
        batches."""
        found = {} if self._apart else {"loss": self.loss(model, *batch)}
        if self.workload.metric is not None:
            of = self.workload.metric.of
            found[self.metric] = valued(of, of(model, *batch), batch, trains=False)
        return found


def _workload(name: str) -> Workload:
    kind = jobs.get(name, swept=True)
    workload = getattr(kind, "workload", None)
    if not isinstance(workload, Workload):
        raise InvalidArgument(f"job {name} is not a declared workload, which tune needs: see jobs.declare")
    if len(kinds := dict.fromkeys(group.optimizer.name for group in workload.groups())) > 1:
        raise InvalidArgument(f"job {name} trains by {' and '.join(kinds)}; tune takes jobs of one class of optimizer")
    if not callable(workload.loss):
        raise InvalidArgument(f"job {name} trains {' and '.join(workload.loss)} in turn; tune takes jobs of one loss")
    return workload


def _factor(workload: Workload, steps: int, step: int) -> float:
    """Return a workload's factor of the learning rate in a step."""
    return workload.factor(step, steps)


def _torchs(made: Made, hyper: Mapping[str, Any], optimizer: torch.optim.Optimizer, config: Config) -> Any:
    """Return torch's schedule of one model."""
    return made.make(made.kind(torch.optim.lr_scheduler), optimizer, {**hyper, **config})
