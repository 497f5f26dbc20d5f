# SPDX-License-Identifier: MIT
"""Training of a declared model, plain or as an array, with an optimizer and a schedule for each of its parts."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch

from .. import _fuse, optim
from .._step import StepRunner
from .._torch import uncompiled_class
from ..errors import InvalidArgument
from . import distributed
from .workload import Loss, Made, Values, Workload, valued

if TYPE_CHECKING:
    from .declared_job import DeclaredJob

Batch = tuple[torch.Tensor, ...]


def autocast(device: str, dtype: torch.dtype | None) -> contextlib.AbstractContextManager[Any]:
    """Context manager: torch.autocast in this dtype, nothing where it is None."""
    return torch.autocast(torch.device(device).type, dtype=dtype) if dtype else contextlib.nullcontext()


class Trainee(torch.nn.Module):
    """Model whose forward returns its losses, so that an array of it returns `[B]` losses."""

    def __init__(self, model: torch.nn.Module, calls: tuple[Loss, ...]) -> None:
        super().__init__()
        self.model, self._calls = model, calls

    def forward(self, call: int, *batch: torch.Tensor) -> torch.Tensor:
        return valued(self._calls[call], self._calls[call](self.model, *batch), batch)


class _AtOnce:
    """Base of what has made its step when the call returns."""

    audits_passed = 0
    settled = True

    def synchronize(self) -> None: ...
    def close(self) -> None: ...


class PlainTraining(_AtOnce):
    """One plain model: optimizers and schedules of its parts, and its steps."""

    def __init__(self, job: DeclaredJob, trainee: Trainee, hyper: Values) -> None:
        self._job = job
        self._parts = [_PlainPart(job, trainee, name, hyper) for name in job.workload.parts()]
        self.optimizers = [one for part in self._parts for one in part.optimizers]
        self.schedules = _schedules(torch.optim.lr_scheduler, job, hyper, self.optimizers)
        self._by_steps = _by_steps(torch.optim.lr_scheduler, job, self.optimizers)
        self._last = torch.empty(0)

    @property
    def skipped(self) -> int:
        """Number of updates that loss scaling has left out."""
        return sum(part.skipped for part in self._parts)

    def step(self, batch: Batch) -> None:
        self._last = torch.stack([part.step(batch) for part in self._parts])
        for schedule in self._by_steps:
            schedule.step()
        _after_step(self._job)

    def losses(self) -> torch.Tensor:
        """Losses `[models]` of the last step, those of a model's parts added up."""
        return self._last.sum().reshape(1)


class _PlainPart:
    """A part of a plain model, trained with the others held."""

    def __init__(self, job: DeclaredJob, trainee: Trainee, name: str, hyper: Values) -> None:
        self._job, self._name = job, name
        self._number = list(job.workload.parts()).index(name)
        self._trained = _trained(trainee)
        self._own = [parameter for own, parameter in self._trained.items() if _is_of(own, name)]
        self.optimizers = [_made(torch.optim, *one, hyper) for one in _optimizers(job, trainee, trainee, name, hyper)]
        _train_only(self._trained, name)  # gradients of these are averaged over the processes, if there are several
        self._trainee = distributed.parallel(trainee, job.place, job.device)
        _train_only(self._trained, "")
        self._scaler = job.scaler()
        self.skipped = 0

    def step(self, batch: Batch) -> torch.Tensor:
        if self._name:
            _train_only(self._trained, self._name)
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        parts = self._job.workload.accumulate
        loss = torch.stack([self._backward(part, parts) for part in split(batch, parts)]).sum()
        self._update()
        return loss

    def _backward(self, batch: Batch, parts: int) -> torch.Tensor:
        with self._job.autocast():
            loss = self._trainee(self._number, *batch)
        loss = loss / parts if parts > 1 else loss
        (loss if self._scaler is None else self._scaler.scale(loss)).backward()
        return loss.detach()

    def _update(self) -> None:
        clip, scaler = self._job.workload.clip(self._job.options), self._scaler
        if scaler is not None:
            for optimizer in self.optimizers:
                scaler.unscale_(optimizer)
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(self._own, clip)
        for optimizer in self.optimizers:
            optimizer.step() if scaler is None else scaler.step(optimizer)
        if scaler is not None:
            scale = scaler.get_scale()
            scaler.update()
            self.skipped += scaler.get_scale() < scale


class ArrayTraining:
    """B models at once. Each goes through all parts of a step without a wait for the others."""

    skipped = 0  # updates that loss scaling has left out, which nobody counts

    def __init__(self, job: DeclaredJob, array: Any, plain: Trainee) -> None:
        self._B, self._job = job.config.B, job
        names = list(job.workload.parts())
        made = [_optimizers(job, array, plain, name, job.hyper) for name in names]
        several = any(len(each) > 1 for each in made)
        clip = job.workload.clip(job.options)
        more = {} if clip is None or several else {"max_grad_norm": clip}
        self.optimizers = [_made(optim, one, groups, job.hyper, **more) for each in made for one, groups in each]
        self.schedules = _schedules(optim.lr_scheduler, job, job.hyper, self.optimizers)
        self._by_steps = _by_steps(optim.lr_scheduler, job, self.optimizers)
        losses = [_loss_of(job, number) for number in range(len(names))]
        scalers = [job.scaler() for _ in names]
        self.runner: StepRunner | _EagerSteps
        if several:
            self.runner = _EagerSteps(array, self.optimizers, losses, scalers, clip, job.workload)
        else:
            self.runner = StepRunner(
                array, self.optimizers, losses, threads=job.config.threads, scaler=scalers,
                accumulate=job.workload.accumulate,
            )  # fmt: skip
        self._last: Any = None

    def step(self, batch: Batch) -> None:
        self._last = self.runner.step(*(_fuse.stack(x, self._B) for x in batch))
        for schedule in self._by_steps:
            schedule.step()
        if self._job.workload.after_step is not None:
            self.runner.synchronize()
            _after_step(self._job)

    def losses(self) -> torch.Tensor:
        assert self._last is not None, "no step was made yet"
        return self._last.losses().reshape(self._B, -1).sum(1)

    def synchronize(self) -> None:
        self.runner.synchronize()

    @property
    def settled(self) -> bool:
        return self.runner.settled

    @property
    def audits_passed(self) -> int:
        return self.runner.audits_passed

    def close(self) -> None:
        self.runner.close()


class _EagerSteps(_AtOnce):
    """Steps of an array whose one loss is trained by optimizers of several classes, which a StepRunner does not take.

    Raises:
        InvalidArgument: the workload trains parts in turn, or with a scale of the loss.
    """

    def __init__(
        self, array: Any, optimizers: list[Any], losses: list[Any], scalers: list[Any], clip: Any, workload: Workload
    ) -> None:
        if len(losses) > 1 or scalers[0] is not None:
            how = "parts in turn" if len(losses) > 1 else "with a scale of the loss (fp16)"
            raise InvalidArgument(
                f"workload {workload.name} trains by optimizers of several classes, an array of which does not train "
                f"{how}: give one class, or B = 0"
            )
        self._array, self._optimizers, self._loss, self._clip = array, optimizers, losses[0], clip
        self._accumulate, self._last = workload.accumulate, torch.empty(0)

    def step(self, *batch: torch.Tensor) -> _EagerSteps:
        for optimizer in self._optimizers:
            optimizer.zero_grad(set_to_none=True)
        parts = split(batch, self._accumulate, 1)
        each = [self._loss(self._array, *part) / self._accumulate for part in parts]
        torch.stack(each).sum().backward()
        if self._clip is not None:
            optim.clip_grad_norm_(self._array.parameters(), self._clip)
        for optimizer in self._optimizers:
            optimizer.step()
        self._last = torch.stack(each).detach().sum(0)
        return self

    def losses(self) -> torch.Tensor:
        """Losses `[B]` of the last step."""
        return self._last


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


def _made(room: Any, made: Made, of: Any, hyper: Values, **more: Any) -> Any:
    """Make an optimizer of these parameters or groups, or a schedule of this optimizer."""
    kind = made.kind(room)
    if room is torch.optim:  # a process that measures one job for seconds does not wait for the compiler's import
        kind = uncompiled_class(kind)
    return made.make(kind, of, hyper, **more)


def with_names(model: torch.nn.Module) -> torch.nn.Module:
    """Note its name at each parameter of a model, for :func:`optimizers_of`; return the model."""
    for name, parameter in model.named_parameters():
        parameter.name_in_model = name  # type: ignore[attr-defined]
    return model


def optimizers_of(
    workload: Workload, hyper: Values, parameters: Iterable[Any], fused: bool = False
) -> list[torch.optim.Optimizer]:
    """Make torch's optimizers of a model, one for each class; its parameters are those of a model :func:`with_names`.

    Args:
        fused: True for torch's implementations in one kernel, where there are any.
    """
    trained = {parameter.name_in_model: parameter for parameter in parameters if parameter.requires_grad}
    found = []
    for made, own in workload.optimizers(trained, hyper):
        kind = made.kind(torch.optim)
        more = {"fused": True} if fused and "fused" in inspect.signature(kind).parameters else {}
        found.append(made.make(kind, own, hyper, **more))
    return found


def _schedules(room: Any, job: DeclaredJob, hyper: Values, optimizers: list[Any]) -> list[Any]:
    schedule = job.workload.schedule
    return [_made(room, schedule, one, hyper) for one in optimizers] if schedule else []


def _by_steps(room: Any, job: DeclaredJob, optimizers: list[Any]) -> list[Any]:
    workload, steps = job.workload, job.steps
    return [room.LambdaLR(one, lambda step: workload.factor(step, steps)) for one in optimizers if workload.rate]


def _after_step(job: DeclaredJob) -> None:
    if job.workload.after_step is not None:
        with torch.no_grad():
            job.workload.after_step(job.model)


def split(batch: Any, parts: int, dim: int = 0) -> list[Any]:
    """Split a batch of tensors into equal parts along its samples, dimension `dim`; one part is the batch as it is."""
    if parts == 1:
        return [batch]
    if uneven := next((x.shape[dim] for x in batch if x.shape[dim] % parts), None):
        raise InvalidArgument(f"a batch of {uneven} samples has no {parts} equal parts")
    return list(zip(*(x.chunk(parts, dim) for x in batch), strict=True))


def _is_of(parameter: str, part: str) -> bool:
    return not part or parameter.startswith(f"model.{part}.")


def _trained(trainee: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Parameters by name, without those that the model itself has frozen."""
    return {name: p for name, p in trainee.named_parameters() if p.requires_grad}


def _optimizers(
    job: DeclaredJob, trainee: torch.nn.Module, plain: torch.nn.Module, part: str, hyper: Values
) -> list[tuple[Made, list[Any]]]:
    """Optimizers of the trained parameters of a part; `plain` is one plain model."""
    trained = {name.removeprefix("model."): p for name, p in _trained(trainee).items() if _is_of(name, part)}
    if not trained:
        raise InvalidArgument(f"the model has no part {part!r} with parameters")
    asked = {name.removeprefix("model."): p for name, p in plain.named_parameters()}
    return job.workload.optimizers(trained, hyper, asked)


def _train_only(trained: dict[str, torch.nn.Parameter], part: str) -> None:
    """Let the parameters of `part` be trained, and hold all others."""
    for name, parameter in trained.items():
        parameter.requires_grad_(_is_of(name, part))
