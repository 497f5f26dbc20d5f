# SPDX-License-Identifier: MIT
"""Training of the parts of a declared model, each by its optimizer and schedule, plain or as an array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch

from .. import _fuse, optim
from .._step import StepRunner, SubmittedStep
from ..errors import InvalidArgument
from .fused_workload import Made, Values

if TYPE_CHECKING:
    from .declared_job import DeclaredJob, Trainee

Batch = tuple[torch.Tensor, ...]


class Part(Protocol):
    """The training of a model, or of one part of it."""

    optimizer: Any
    schedule: Any

    def step(self, batch: Batch) -> None: ...
    def losses(self) -> torch.Tensor: ...
    def synchronize(self) -> None: ...
    def close(self) -> None: ...
    @property
    def settled(self) -> bool: ...


class PlainPart:
    """Training of one plain model, or of a part of it while the others are held."""

    def __init__(self, job: DeclaredJob, trainee: Trainee, name: str, hyper: Values) -> None:
        self._job, self._trainee, self._name = job, trainee, name
        self._number = list(job.workload.parts()).index(name)
        self.optimizer = _made(torch.optim, job.workload.optimizer, hyper, _parameters(trainee, name))
        schedule = job.workload.schedule
        self.schedule = schedule and _made(torch.optim.lr_scheduler, schedule, hyper, self.optimizer)
        self._scaler = job.scaler()
        self._last = torch.empty(0)

    def step(self, batch: Batch) -> None:
        if self._name:
            train_only(self._trainee, self._name)
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
        self._last = loss.detach()

    def losses(self) -> torch.Tensor:
        return self._last.reshape(1)

    def synchronize(self) -> None:
        pass

    def close(self) -> None:
        pass

    @property
    def settled(self) -> bool:
        return True


class ArrayPart:
    """Training of B models at once, or of a part of each while the others are held."""

    def __init__(self, job: DeclaredJob, array: Any, name: str) -> None:
        self._B = job.config.B
        number = list(job.workload.parts()).index(name)
        self.optimizer = _made(optim, job.workload.optimizer, job.hyper, _parameters(array, name))
        schedule = job.workload.schedule
        self.schedule = schedule and _made(optim.lr_scheduler, schedule, job.hyper, self.optimizer)

        def losses(array: Any, *batch: torch.Tensor) -> torch.Tensor:
            with job.autocast():
                found: torch.Tensor = array(number, *batch)
            return found

        self.runner = StepRunner(
            array, self.optimizer, losses, threads=job.config.threads, scaler=job.scaler()
        )
        self._last: SubmittedStep | None = None

    def step(self, batch: Batch) -> None:
        self._last = self.runner.step(*(_fuse.stack(x, self._B) for x in batch))

    def losses(self) -> torch.Tensor:
        assert self._last is not None, "no step was made yet"
        return self._last.losses()

    def synchronize(self) -> None:
        self.runner.synchronize()

    @property
    def settled(self) -> bool:
        return self.runner.settled

    def close(self) -> None:
        self.runner.close()


def _made(room: Any, made: Made, hyper: Values, of: Any) -> Any:
    """Make an optimizer of these parameters, or a schedule of this optimizer."""
    return getattr(room, made.name)(of, **made.filled(hyper))


def _is_of(parameter: str, part: str) -> bool:
    return not part or parameter.startswith(f"model.{part}.")


def _parameters(trainee: torch.nn.Module, part: str) -> list[torch.nn.Parameter]:
    found = [p for name, p in trainee.named_parameters() if _is_of(name, part)]
    if not found:
        raise InvalidArgument(f"the model has no part {part!r} with parameters")
    return found


def train_only(trainee: torch.nn.Module, part: str) -> None:
    """Let the parameters of `part` be trained, and hold all others."""
    if part:
        for name, parameter in trainee.named_parameters():
            parameter.requires_grad_(_is_of(name, part))


def share_tensors(array: torch.nn.Module, first: torch.nn.Module) -> None:
    """Make the parameters and buffers of `array` share memory with those of the same name in `first`."""
    for mine, its in (
        (array.named_parameters(), first.named_parameters()),
        (array.named_buffers(), first.named_buffers()),
    ):
        for (_, tensor), (_, other) in zip(mine, its, strict=True):
            tensor.data = other.data
