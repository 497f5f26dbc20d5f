# SPDX-License-Identifier: MIT
"""The job of a declared workload: one plain model, or an array of B that `dnnsuite.fuse` makes of plain models."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch

from .. import _fuse, optim
from .._seeds import seed_all
from .._torch_threads import torch_threads
from ..errors import InvalidArgument
from ._fused_job import FusedJob
from ._model_parts import ArrayTraining, Batch, PlainTraining, Training, autocast
from ._workload import JobConfig, option, register
from .fused_workload import Batches, FusedWorkload, Loss

_HELD_OUT_SAMPLES = 512  # that an accuracy is of


class Trainee(torch.nn.Module):
    """Model whose forward returns its losses, so that an array of it returns `[B]` losses."""

    def __init__(self, model: torch.nn.Module, calls: tuple[Loss, ...]) -> None:
        super().__init__()
        self.model, self._calls = model, calls

    def forward(self, call: int, *batch: torch.Tensor) -> torch.Tensor:
        return self._calls[call](self.model, *batch)


class DeclaredJob(FusedJob):
    """A `FusedJob` of a `FusedWorkload`. Model i is made from the seed `config.seed + i`."""

    workload: ClassVar[FusedWorkload]

    def __init__(self, config: JobConfig) -> None:
        super().__init__(config)
        workload = self.workload
        option(config.options, list(workload.options), self.name)
        option(config.hyper, list(workload.hyper), self.name)
        self.options = {**workload.options, **config.options}
        self.hyper = {
            name: list(config.hyper.get(name, [value] * config.models))
            for name, value in workload.hyper.items()
        }
        self.batches: Batches | None = None  # the training data, once they are loaded
        self._held: list[Batch] = []
        self._training: Training | None = None
        self.iteration = 0  # number of steps made; the next one takes the batch of this index

    @classmethod
    def precisions(cls, device: str) -> list[str]:
        """Precisions of the workload: fp32, amp and fp64 on a GPU; fp32, bf16 and fp64 on a CPU."""
        return ["fp32", "amp", "fp64"] if device.startswith("cuda") else ["fp32", "bf16", "fp64"]

    @classmethod
    def preset(cls, name: str, device: str) -> dict[str, Any]:
        """Return the settings of a preset (`quick`, `default`, `paper`) on `device`."""
        return cls.workload.preset(name, device)

    @classmethod
    def option_defaults(cls) -> Mapping[str, Any]:
        """Return the workload's options with their defaults."""
        return cls.workload.options

    @classmethod
    def hyperparameters(cls, generator: random.Random, models: int) -> dict[str, list[float]]:
        """Draw the hyper-parameters of `models` models, as a sweep would."""
        drawn = [cls.workload.sample(generator) for _ in range(models)]
        return {name: [values[name] for values in drawn] for name in cls.workload.hyper}

    @classmethod
    def inspect(cls, config: JobConfig) -> int:
        job = cls(replace(config, B=0, device="cpu", precision="fp32", hyper={}))
        job.options.update(cls.workload.data(job.config, job.options).sizes)
        model = job.build(0).model
        _fuse.fuse([model], unfused=config.unfused)
        return sum(p.numel() * p.element_size() for p in model.parameters())

    def setup(self) -> None:
        config = self.config
        if config.threads:
            torch.set_num_threads(config.threads)
        batches = self.batches = self.batches or self.workload.data(config, self.options)
        self.options.update(batches.sizes)
        built = [self.build(i) for i in range(config.models)]
        seed_all(config.seed)
        if config.B:
            self.trainee = self.fused(built)
            self._training = ArrayTraining(self, self.trainee)
        else:
            self.trainee = built[0]
            hyper = {name: values[0] for name, values in self.hyper.items()}
            self._training = PlainTraining(self, self.trainee, hyper)

    def build(self, index: int) -> Trainee:
        """Build the plain model `index` with its losses."""
        hyper = {name: values[index] for name, values in self.hyper.items()}
        with torch.random.fork_rng(devices=[]):
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
        """The optimizer of the models, or one of each part of them."""
        return self.training.optimizers

    def fused(self, built: Sequence[Trainee]) -> Any:
        """Fuse `built` into one array, which draws random numbers like each of them alone."""
        seeds = [self.config.seed + i for i in range(len(built))]
        return _fuse.fuse(built, seeds=seeds, unfused=[f"model.{name}" for name in self.config.unfused])

    @property
    def training(self) -> Training:
        """The training of the model, or of the array; its optimizers, schedules and steps."""
        assert self._training is not None, "setup was not called"
        return self._training

    def batch(self, index: int) -> Batch:
        """Batch `index` on the device, one that all models share: tensors `[N, ...]`."""
        assert self.batches is not None, "setup was not called"
        # Beside an array's threads, which have the CPUs, more threads for a small batch cost more than its step.
        with torch_threads(1) if self.config.B else contextlib.nullcontext():
            return tuple(self._placed(x) for x in self.batches.batch(index))

    def _placed(self, x: torch.Tensor) -> torch.Tensor:
        double = self.config.precision == "fp64" and x.is_floating_point()
        return x.to(self.config.device, torch.float64 if double else x.dtype)

    def hold_batches(self, count: int) -> bool:
        self._held = [self.batch(self.iteration + i) for i in range(count)]
        return True

    def step(self) -> None:
        held = self._held
        batch = held[self.iteration % len(held)] if held else self.batch(self.iteration)
        self.iteration += 1
        self.training.step(batch)

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

    def held_out_accuracy(self) -> list[float] | None:
        """Share of right answers of each model on samples that it was not trained on; None for one without labels."""
        if self.workload.held_out is None:
            return None
        batches = self.workload.held_out(self.config, self.options)
        call, models = len(self.workload.parts()), self.config.B
        self.trainee.eval()
        found = []
        with torch.no_grad(), self.autocast():
            for i in range(math.ceil(_HELD_OUT_SAMPLES / self.config.batch_size)):
                batch = [self._placed(x) for x in batches.batch(i)]
                right = self.trainee(call, *(_fuse.stack(x, models) if models else x for x in batch))
                found.append(right.double().reshape(self.config.models))
        self.trainee.train()
        return [float(share) for share in torch.stack(found).mean(0)]

    def provenance(self) -> dict[str, Any]:
        assert self.batches is not None, "setup was not called"
        workload, dtype = self.workload, self.autocast_dtype
        return {
            "data": {**self.batches.record, **self.batches.sizes},
            "model": dict(self.options),
            "parameters_per_model": sum(p.numel() for p in self.model.parameters()) // self.config.models,
            "optimizer": workload.optimizer.name,
            "schedule": workload.schedule.name if workload.schedule else None,
            "autocast": str(dtype).removeprefix("torch.") if dtype else None,
            "hyper": self.hyper,
        }

    def close(self) -> None:
        if self._training is not None:
            self._training.close()

    @property
    def settled(self) -> bool:
        """True once steps run as all further ones will; `StepRunner` tries several ways first."""
        return self.training.settled

    @property
    def audits_passed(self) -> int:
        """Replayed steps of an array that were run both ways, and left the same bits; 0 for a model alone."""
        return self.training.runner.audits_passed if isinstance(self.training, ArrayTraining) else 0

    @property
    def items_per_step(self) -> int:
        """Items, in `unit`, of one step over all models."""
        return self.config.batch_size * self.config.models * self.workload.items_per_sample

    @property
    def autocast_dtype(self) -> torch.dtype | None:
        """Dtype of autocast: bfloat16 if the GPU supports it, else float16; None without autocast."""
        if self.config.precision == "bf16":
            return torch.bfloat16
        if self.config.precision != "amp":
            return None
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Context manager: torch.autocast in half precision, nothing else."""
        return autocast(self.config.device, self.autocast_dtype)

    def scaler(self) -> torch.amp.GradScaler | None:
        """Return a scaler of gradients where they can underflow."""
        return torch.amp.GradScaler(self.config.device) if self.autocast_dtype == torch.float16 else None

    @classmethod
    def check_equality(cls, config: JobConfig, steps: int = 20) -> dict[str, Any]:
        """Train the array and B separate models alike, and return the comparison of their losses."""
        from ._equality import check

        return check(cls, config, steps)


def widened(x: torch.Tensor) -> torch.Tensor:
    """`x` in float32 or better, for the loss of logits that autocast may have left in half precision."""
    return x if x.dtype == torch.float64 else x.float()


def declare(workload: FusedWorkload) -> type[DeclaredJob]:
    """Register a workload as a job under its name, and return the job's class.

    The class belongs to the module that defines the workload's model.

    Raises:
        InvalidArgument: another job with a fused form has the name, or torch or dnnsuite lacks a class that it names.
    """
    for made, rooms in (
        (workload.optimizer, (torch.optim, optim)),
        (workload.schedule, (torch.optim.lr_scheduler, optim.lr_scheduler)),
    ):
        if made is not None and (
            lacking := [room.__name__ for room in rooms if not hasattr(room, made.name)]
        ):
            raise InvalidArgument(f"workload {workload.name}: {lacking[0]} has no {made.name}")
    name = "".join(word.title() for word in workload.name.replace("-", "_").split("_")) + "Job"
    body = {
        "workload": workload,
        "description": workload.description,
        "unit": workload.unit,
        "__doc__": f"{workload.description}.",
        "__module__": getattr(workload.model, "__module__", None) or __name__,
        "__qualname__": name,
    }
    return register(workload.name)(type(name, (DeclaredJob,), body))
