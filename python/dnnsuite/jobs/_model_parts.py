# SPDX-License-Identifier: MIT
"""Training of a declared model, plain or as an array, with an optimizer and a schedule for each of its parts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import torch

from .. import _fuse, optim
from .._step import StepRunner, SubmittedStep
from ..errors import InvalidArgument
from .fused_workload import Made, Values

if TYPE_CHECKING:
    from .declared_job import DeclaredJob, Trainee

Batch = tuple[torch.Tensor, ...]


def autocast(device: str, dtype: torch.dtype | None) -> contextlib.AbstractContextManager[Any]:
    """Context manager: torch.autocast in this dtype, nothing where it is None."""
    return torch.autocast(torch.device(device).type, dtype=dtype) if dtype else contextlib.nullcontext()


class Training(Protocol):
    """The training of one model or of an array: optimizers and schedules of its parts, and its steps."""

    optimizers: list[Any]
    schedules: list[Any]

    def step(self, batch: Batch) -> None: ...
    def losses(self) -> torch.Tensor:
        """Losses `[models]` of the last step, those of a model's parts added up."""

    def synchronize(self) -> None: ...
    def close(self) -> None: ...
    @property
    def settled(self) -> bool: ...


class PlainTraining:
    """One plain model."""

    def __init__(self, job: DeclaredJob, trainee: Trainee, hyper: Values) -> None:
        self._parts = [_PlainPart(job, trainee, name, hyper) for name in job.workload.parts()]
        self.optimizers = [part.optimizer for part in self._parts]
        self.schedules = _schedules(torch.optim.lr_scheduler, job, hyper, self.optimizers)
        self._last = torch.empty(0)

    def step(self, batch: Batch) -> None:
        self._last = torch.stack([part.step(batch) for part in self._parts])

    def losses(self) -> torch.Tensor:
        return self._last.sum().reshape(1)

    def synchronize(self) -> None:
        pass

    def close(self) -> None:
        pass

    @property
    def settled(self) -> bool:
        return True


class _PlainPart:
    """A part of a plain model, trained with the others held."""

    def __init__(self, job: DeclaredJob, trainee: Trainee, name: str, hyper: Values) -> None:
        self._job, self._trainee, self._name = job, trainee, name
        self._number = list(job.workload.parts()).index(name)
        self.optimizer = _made(torch.optim, job.workload.optimizer, hyper, _parameters(trainee, name))
        self._scaler = job.scaler()

    def step(self, batch: Batch) -> torch.Tensor:
        if self._name:
            _train_only(self._trainee, self._name)
        self.optimizer.zero_grad(set_to_none=True)
        with self._job.autocast():
            loss = self._trainee(self._number, *batch)
        if self._scaler is None:
            loss.backward()
            self.optimizer.step()
        else:
            self._scaler.scale(loss).backward()
            self._scaler.step(self.optimizer)
            self._scaler.update()
        return loss.detach()


class ArrayTraining:
    """B models at once. Each goes through all parts of a step without a wait for the others."""

    def __init__(self, job: DeclaredJob, array: Any) -> None:
        self._B = job.config.B
        names = list(job.workload.parts())
        self.optimizers = [
            _made(optim, job.workload.optimizer, job.hyper, _parameters(array, name)) for name in names
        ]
        self.schedules = _schedules(optim.lr_scheduler, job, job.hyper, self.optimizers)
        losses = [_loss_of(job, number) for number in range(len(names))]
        scalers = [job.scaler() for _ in names]
        self.runner = StepRunner(array, self.optimizers, losses, threads=job.config.threads, scaler=scalers)
        self._last: SubmittedStep | None = None

    def step(self, batch: Batch) -> None:
        self._last = self.runner.step(*(_fuse.stack(x, self._B) for x in batch))

    def losses(self) -> torch.Tensor:
        assert self._last is not None, "no step was made yet"
        return self._last.losses().reshape(self._B, -1).sum(1)

    def synchronize(self) -> None:
        self.runner.synchronize()

    @property
    def settled(self) -> bool:
        return self.runner.settled

    def close(self) -> None:
        self.runner.close()


def _loss_of(job: DeclaredJob, number: int) -> Callable[..., torch.Tensor]:
    """Return the loss function of part `number` of an array.

    It must not see the job, whose counters and held batches change: a recording is of all that the function sees.
    """
    device, dtype = job.config.device, job.autocast_dtype

    def losses(array: Any, *batch: torch.Tensor) -> torch.Tensor:
        with autocast(device, dtype):
            found: torch.Tensor = array(number, *batch)
        return found

    return losses


def _made(room: Any, made: Made, hyper: Values, of: Any) -> Any:
    """Make an optimizer of these parameters, or a schedule of this optimizer."""
    return getattr(room, made.name)(of, **made.filled(hyper))


def _schedules(room: Any, job: DeclaredJob, hyper: Values, optimizers: list[Any]) -> list[Any]:
    schedule = job.workload.schedule
    return [_made(room, schedule, hyper, one) for one in optimizers] if schedule else []


def _is_of(parameter: str, part: str) -> bool:
    return not part or parameter.startswith(f"model.{part}.")


def _parameters(trainee: torch.nn.Module, part: str) -> list[torch.nn.Parameter]:
    found = [p for name, p in trainee.named_parameters() if _is_of(name, part)]
    if not found:
        raise InvalidArgument(f"the model has no part {part!r} with parameters")
    return found


def _train_only(trainee: torch.nn.Module, part: str) -> None:
    """Let the parameters of `part` be trained, and hold all others."""
    for name, parameter in trainee.named_parameters():
        parameter.requires_grad_(_is_of(name, part))
