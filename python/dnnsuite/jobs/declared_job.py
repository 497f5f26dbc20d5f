# SPDX-License-Identifier: MIT
"""The job of a declared workload: one plain model, or an array of B that `dnnsuite.fuse` makes of plain models."""

from __future__ import annotations

import contextlib
import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from .._lazy import torch
from .._seeds import seed_all
from ..errors import InvalidArgument
from . import distributed
from ._job import Job, JobConfig, option, register
from .workload import MAKES_BATCHES, Made, Workload, models

if TYPE_CHECKING:
    from .model_parts import ArrayTraining, Batch, PlainTraining, Trainee

_AS_PRESET = {"": "default", "baselines": "default", "fast": "default", "smoke": "quick"}  # of the suite of 2019
_STEADY = 2**31 - 1  # steps after which a loss scale grows that is given


class DeclaredJob(Job):
    """A job of a `Workload`, for suites and workflows. Model i is made from the seed `config.seed + i`."""

    workload: ClassVar[Workload]

    def __init_subclass__(cls) -> None:
        if (workload := vars(cls).get("workload")) is not None:
            cls.description, cls.unit, cls.default_precision = workload.description, workload.unit, workload.precision
            cls.defaults, cls.card = workload.settings("default"), workload.card
            cls.alone = MAKES_BATCHES if workload.rollouts else cls.alone
            cls.distributed, cls.scope = workload.spread, "all" if workload.spread else "student"

    def __init__(self, config: JobConfig) -> None:
        workload = self.workload
        if workload.device:
            config = replace(config, device=workload.device)
        super().__init__(config)
        self.place = distributed.place_of(self.scope)
        if self.place.world_size > 1:
            device = distributed.device_of(self.place, self.device)
            self.config = config = replace(config, device=str(device))
        option(config.hyper, list(workload.hyper), self.name)
        self.options = {**workload.options, **config.options}
        own = {name: self.options.get(name, value) for name, value in workload.hyper.items()}
        self.hyper = {name: list(config.hyper.get(name, [value] * config.models)) for name, value in own.items()}
        self.batches: Any = None  # the training data, Batches or Rollouts, once they are loaded
        self._held: list[Batch] = []
        self._training: PlainTraining | ArrayTraining | None = None
        self._files: Any = None
        self.iteration = 0  # number of steps made; the next one takes the batch of this index
        quick = workload.presets["default"]
        self.steps = config.steps or quick.epochs * quick.iters_per_epoch  # that a schedule by steps is for

    @classmethod
    def precisions(cls, device: str) -> list[str]:
        """Precisions of the workload: fp32, bf16, fp16 and fp64, and amp on a GPU, which is the better half
        precision."""
        half = cls.workload.half
        return ["fp32", *(["amp"] if half and device.startswith("cuda") else ()), *half, "fp64"]

    @classmethod
    def preset(cls, name: str, device: str) -> dict[str, Any]:
        """Return the settings of a preset (`quick`, `default`, `paper`) on `device`."""
        return cls.workload.preset(name, device)

    @classmethod
    def settings(cls, preset: str) -> dict[str, Any]:
        """Return the settings of a preset for a suite; see :meth:`Workload.settings`."""
        return cls.workload.settings(_AS_PRESET.get(preset, preset))

    @classmethod
    def option_defaults(cls) -> Mapping[str, Any]:
        """Return the workload's options with their defaults."""
        return cls.workload.options

    @classmethod
    def hyperparameters(cls, generator: random.Random, models: int) -> dict[str, list[float]]:
        """Draw the hyper-parameters of `models` models, as a sweep would."""
        drawn = [cls.workload.drawn(generator) for _ in range(models)]
        return {name: [values[name] for values in drawn] for name in cls.workload.hyper}

    @classmethod
    def inspect(cls, config: JobConfig) -> int:
        from .. import _fuse

        job = cls(replace(config, B=0, device="cpu", precision="fp32", hyper={}))
        batches = cls.workload.batches(job.config, job.options)
        job.options.update(batches.sizes)
        model = job.build(0).model
        _fuse.fuse([model], unfused=config.unfused)
        return sum(p.numel() * p.element_size() for p in model.parameters())

    def setup(self) -> None:
        from .model_parts import ArrayTraining, PlainTraining

        _check_classes(self.workload)
        config = self.config
        distributed.join(self.place, self.device)
        if config.threads:
            torch.set_num_threads(config.threads)
        batches = self.batches = self.batches or self.workload.batches(config, self.options)
        self.feed = getattr(batches, "feed", "memory")
        self.options.update(batches.sizes)
        if not self.workload.reseed:
            seed_all(config.seed)  # and what the model draws is drawn from there
        built = [self.build(i) for i in range(config.models)]
        if self.workload.reseed or self.place.rank:
            seed_all(config.seed + self.place.rank)  # of several processes each has random numbers of its own
        if config.B:
            self.trainee = self.fused(built)
            self._training = ArrayTraining(self, self.trainee, built[0])
        else:
            self.trainee = built[0]
            hyper = {name: values[0] for name, values in self.hyper.items()}
            self._training = PlainTraining(self, self.trainee, hyper)
        # Now: a job that trains parts in turn holds the others.
        self._weights = [p for p in self.trainee.parameters() if p.requires_grad]

    def build(self, index: int) -> Trainee:
        """Build the plain model `index` with its losses."""
        from .model_parts import Trainee

        hyper = {name: values[index] for name, values in self.hyper.items()}
        with torch.random.fork_rng(devices=[], enabled=self.workload.reseed):
            if self.workload.reseed or index:
                seed_all(self.config.seed + index)
            model = self.workload.model(self.options, hyper)
        trainee = Trainee(model, self.workload.calls()).to(self.config.device)
        return trainee.double() if self.config.precision == "fp64" else trainee

    @property
    def model(self) -> torch.nn.Module:
        """The plain model, or the array of models."""
        return self.trainee.model

    @property
    def optimizers(self) -> list[Any]:
        """The optimizer of the models, or one per part."""
        return self.training.optimizers

    def fused(self, built: Sequence[Trainee]) -> Any:
        """Fuse `built` into one array, which draws random numbers like each of them alone."""
        from .. import _fuse

        seeds = [self.config.seed + i for i in range(len(built))]
        return _fuse.fuse(built, seeds=seeds, unfused=[f"model.{name}" for name in self.config.unfused])

    @property
    def training(self) -> PlainTraining | ArrayTraining:
        """The training of the model, or of the array; its optimizers, schedules and steps."""
        assert self._training is not None, "setup was not called"
        return self._training

    def batch(self, index: int) -> Batch:
        """Batch `index` on the device, which all models share: tensors `[N, ...]`."""
        from .._torch_threads import torch_threads

        assert self.batches is not None, "setup was not called"
        # Beside an array's threads, which have the CPUs, more threads for a small batch cost more than its step.
        with torch_threads(1) if self.config.B else contextlib.nullcontext():
            if self._files is not None:
                loader, prepare = self._files
                return self._on_device(prepare(next(loader)))
            if self.workload.rollouts:
                with self.autocast():
                    return self._on_device(self.batches.batch_of(self.model, index))
            return self._on_device(self.batches.batch(index))

    def _on_device(self, batch: Sequence[torch.Tensor]) -> Batch:
        return tuple(self._placed(x) for x in batch)

    def _placed(self, x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        double = self.config.precision == "fp64" and x.is_floating_point()
        return x.to(self.config.device, torch.float64 if double else x.dtype)

    def hold_batches(self, count: int) -> bool:
        if self.workload.rollouts:
            return False
        self._held = [self.batch(self.iteration + i) for i in range(count)]
        return True

    def with_loader(self) -> Any:
        """Draw batches from a loader of files from now on; return where they come from, None if there are none."""
        found = self.workload.files(self.config, self.options) if self.workload.files else None
        if found is None:
            return None
        loader, prepare, origin = found
        self._files, self.feed = (loader, prepare), "loader"
        return origin

    def step(self) -> None:
        held, began_ns = self._held, time.monotonic_ns()
        batch = held[self.iteration % len(held)] if held else self.batch(self.iteration)
        self.data_wait_ns += time.monotonic_ns() - began_ns
        self.iteration += 1
        skipped = self.training.skipped
        self.training.step(batch)
        self.steps_tried += 1
        self.steps_skipped += self.training.skipped > skipped

    def settle_loss_scale(self, most: int = 12) -> None:
        for _ in range(most if self.autocast_dtype == torch.float16 else 0):
            skipped = self.steps_skipped
            self.step()
            if self.steps_skipped == skipped:
                break
        self.steps_tried = self.steps_skipped = 0
        self.synchronize()

    def weights(self) -> list[torch.Tensor]:
        return self._weights

    @property
    def last_loss(self) -> torch.Tensor:
        return self.training.losses().mean()

    def metrics(self) -> dict[str, float]:
        """Return the metric on held-out data by its name, as a mean over the models, and the measures of rollouts."""
        found = self.held_out_metric()
        own: dict[str, float] = getattr(self.batches, "metrics", dict)()
        return own if found is None else {**own, self.workload.metric.name: sum(found) / len(found)}  # type: ignore[union-attr]

    def synchronize(self) -> None:
        self.training.synchronize()
        if self.config.device.startswith("cuda"):
            torch.cuda.synchronize()

    def end_epoch(self) -> None:
        for schedule in self.training.schedules:
            schedule.step()

    def losses(self) -> list[float]:
        """Losses of the last step, those of a model's parts added up."""
        return self.training.losses().tolist() if self.iteration else []

    def held_out_metric(self) -> list[float] | None:
        """Metric of each model on samples that it was not trained on; None for a workload without one."""
        from .. import _fuse

        workload, models = self.workload, self.config.B
        if workload.held_out is None or workload.metric is None:
            return None
        batches, call = workload.batches(self.config, self.options, True), len(workload.parts())
        count = workload.metric.count(self.config.batch_size)
        self.trainee.eval()
        found = []
        with torch.no_grad(), self.autocast():
            for i in range(count):
                batch = self._on_device(batches.batch(i))
                each = self.trainee(call, *(_fuse.stack(x, models) if models else x for x in batch))
                found.append(each.double().reshape(self.config.models))
        self.trainee.train()
        return [float(value) for value in torch.stack(found).mean(0)]

    def quality(self, preset: str, metrics: Mapping[str, float]) -> dict[str, Any] | None:
        metric = self.workload.metric
        target = metric.target.get(_AS_PRESET.get(preset, preset)) if metric else None
        if metric is None or target is None:
            return None
        value = metrics[metric.name]
        known = {"metric": metric.name, "value": value, "better": metric.better, "target": target}
        return {**known, "reached": metric.reached(value, target)}

    def provenance(self) -> dict[str, Any]:
        assert self.batches is not None, "setup was not called"
        workload, dtype = self.workload, self.autocast_dtype
        return {
            "data": {**self.batches.record, **self.batches.sizes},
            "model": dict(self.options),
            "parameters_per_model": sum(p.numel() for p in self.model.parameters()) // self.config.models,
            "optimizer": " and ".join(dict.fromkeys(group.optimizer.name for group in workload.groups())),
            "schedule": workload.schedule.name if workload.schedule else None,
            "autocast": str(dtype).removeprefix("torch.") if dtype else None,
            "hyper": self.hyper,
            **({"flops_per_item": workload.flops_per_item(self.options)} if workload.flops_per_item else {}),
        }

    def close(self) -> None:
        if self._training is not None:
            self._training.close()
        if self._files is not None:
            self._files[0].close()
            self._files = None
        if hasattr(self.batches, "close"):
            self.batches.close()
        if self.place.world_size > 1:
            distributed.finish()

    @property
    def settled(self) -> bool:
        """True once steps run in their final way; `StepRunner` tries several ways first."""
        return self.training.settled

    @property
    def audits_passed(self) -> int:
        """Replayed steps of an array that passed an audit, bit for bit; 0 for a model alone."""
        return self.training.audits_passed

    @property
    def items_per_step(self) -> int:
        """Items, in `unit`, of one step over all models."""
        samples = getattr(self.batches, "batch_size", self.config.batch_size)  # of data that are one batch: one
        each = samples * self.config.models * self.workload.items(self.options)
        return int(each * self.place.world_size)

    @property
    def autocast_dtype(self) -> torch.dtype | None:
        """Dtype of autocast: that of the precision, of amp bfloat16 if the GPU supports it; None without autocast."""
        if self.config.precision in ("bf16", "fp16"):
            return torch.bfloat16 if self.config.precision == "bf16" else torch.float16
        if self.config.precision != "amp":
            return None
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Context manager: torch.autocast in half precision, nothing else."""
        from .model_parts import autocast

        return autocast(self.config.device, self.autocast_dtype)

    def scaler(self) -> torch.amp.GradScaler | None:
        """Return a scaler of gradients where they can underflow."""
        scale = self.workload.loss_scale
        given: dict[str, Any] = {} if scale is None else {"init_scale": scale, "growth_interval": _STEADY}
        return torch.amp.GradScaler(self.device.type, **given) if self.autocast_dtype == torch.float16 else None

    @classmethod
    def check_equality(cls, config: JobConfig, steps: int = 20) -> dict[str, Any]:
        """Train the array and B separate models in the same way, and return a comparison of their losses."""
        from ._equality import check

        return check(cls, config, steps)


def classified(model: Any, *batch: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of a model's logits with the classes, the last tensor of a batch."""
    return torch.nn.functional.cross_entropy(models.widened(model(*batch[:-1])), batch[-1])


def accuracy(model: Any, *batch: torch.Tensor) -> torch.Tensor:
    """Share of a batch whose likeliest class is the right one, the last tensor."""
    return (model(*batch[:-1]).argmax(-1) == batch[-1]).float().mean()


def declare(workload: Workload) -> type[DeclaredJob]:
    """Register a workload as a job under its name, and return the job's class.

    The class belongs to the module that defines the workload's model.

    Raises:
        InvalidArgument: another job has the name, or torch or dnnsuite lacks a class that it names.
    """
    if "torch" in sys.modules:  # else by `setup`: a suite is described without torch
        _check_classes(workload)
    name = "".join(word.title() for word in workload.name.replace("-", "_").split("_")) + "Job"
    body = {
        "workload": workload,
        "__doc__": f"{workload.description}.",
        "__module__": getattr(workload.model, "__module__", None) or __name__,
        "__qualname__": name,
    }
    return register(workload.name)(type(name, (DeclaredJob,), body))


def _check_classes(workload: Workload) -> None:
    from .. import optim

    for made, rooms in (
        # Of groups each class needs to be torch's only: one that dnnsuite lacks trains models one by one.
        *(
            (group.optimizer, (torch.optim, optim) if isinstance(workload.optimizer, Made) else (torch.optim,))
            for group in workload.groups()
        ),
        (workload.schedule, (torch.optim.lr_scheduler, optim.lr_scheduler)),
    ):
        if made is not None and (lacking := [room.__name__ for room in rooms if not hasattr(room, made.name)]):
            raise InvalidArgument(f"workload {workload.name}: {lacking[0]} has no {made.name}")
