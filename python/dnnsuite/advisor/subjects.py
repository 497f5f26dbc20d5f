# SPDX-License-Identifier: MIT
"""Models that advice is asked for: a job's, or a user's own."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import InvalidArgument

if TYPE_CHECKING:
    import torch

    from ..jobs import JobConfig

_BATCHES = 4  # that are kept on the device, so that no loader is measured


class JobSubject:
    """A declared job with the hyperparameters of its declaration."""

    def __init__(self, job: str, config: JobConfig) -> None:
        from .. import jobs

        self._kind, self._config, self.device = jobs.get(job, swept=True), config, config.device

    def stepper(self, B: int, threads: int) -> _JobStepper:
        return _JobStepper(self._made(B, threads))

    def plain_step(self) -> tuple[Callable[[], Any], Any]:
        job = self._made(0, 0)
        return job.step, job.model

    def _made(self, B: int, threads: int) -> Any:
        job = self._kind(replace(self._config, B=B, threads=threads or None))
        job.setup()
        job.hold_batches(_BATCHES)
        return job


class _JobStepper:
    def __init__(self, job: Any) -> None:
        self._job = job

    @property
    def settled(self) -> bool:
        return bool(getattr(self._job, "settled", True))

    def step(self) -> None:
        self._job.step()
        self._job.synchronize()

    def close(self) -> None:
        self._job.close()


class ModelsSubject:
    """A user's models, the batch they train on, their loss and optimizer.

    Args:
        models: plain torch modules of one architecture, or a function that makes one. Copies are trained.
        batch: a tensor `[N, ...]` or several, which every model sees; each may be a dict of tensors.
        loss: (model, *batch) → the loss `[]` of one model.
        optimizer: parameters → an optimizer of `torch.optim` that `dnnsuite.optim` has, too.
    """

    def __init__(
        self,
        models: Sequence[torch.nn.Module] | Callable[[], torch.nn.Module],
        batch: Any,
        loss: Callable[..., torch.Tensor],
        optimizer: Callable[[Any], torch.optim.Optimizer],
    ) -> None:
        for name, function in (("loss", loss), ("optimizer", optimizer)):
            if not callable(function):
                raise InvalidArgument(f"{name} is a {type(function).__name__}: give a function")
        self._models = _several(models)
        self._batch = tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)
        for part in self._batch:
            _check_tensors(part)
        self._loss, self._optimizer = loss, optimizer
        first = next(self._models[0].parameters(), None)
        if first is None:
            raise InvalidArgument("advice needs models with parameters to train")
        self.device = str(first.device)

    def stepper(self, B: int, threads: int) -> Any:
        if B == 0:
            model = copy.deepcopy(self._models[0])
            return _PlainStepper(model, self._optimizer(model.parameters()), self._loss, self._batch, self.device)
        return _ArrayStepper(self._chosen(B), self._optimizer, self._loss, self._batch, threads)

    def plain_step(self) -> tuple[Callable[[], Any], Any]:
        model = copy.deepcopy(self._models[0])
        return lambda: self._loss(model, *self._batch).backward(), model

    def _chosen(self, B: int) -> list[torch.nn.Module]:
        return [copy.deepcopy(self._models[i % len(self._models)]) for i in range(B)]


def _mapped(function: Callable[[Any], Any], part: Any) -> Any:
    """Part of a batch, a tensor or a dict of tensors, with `function` of each tensor."""
    if isinstance(part, Mapping):
        return {name: _mapped(function, value) for name, value in part.items()}
    return function(part)


def _check_tensors(part: Any) -> None:
    import torch

    def check(value: Any) -> None:
        if not isinstance(value, torch.Tensor):
            raise InvalidArgument(f"a batch holds a {type(value).__name__}: it may hold tensors, and dicts of them")

    _mapped(check, part)


def _several(models: Any) -> list[torch.nn.Module]:
    import torch

    if isinstance(models, torch.nn.Module):
        models = [models]
    elif callable(models):
        models = [models()]
    found = list(models)
    for model in found:
        if not isinstance(model, torch.nn.Module):
            raise InvalidArgument(
                f"advise takes torch modules or a function that makes one, got a {type(model).__name__}"
            )
    if not found:
        raise InvalidArgument("advise takes one or more models, got none")
    return found


class _PlainStepper:
    settled = True

    def __init__(self, model: Any, optimizer: Any, loss: Any, batch: Any, device: str) -> None:
        self._model, self._optimizer, self._loss, self._batch = model, optimizer, loss, batch
        self._on_gpu = device.startswith("cuda")

    def step(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        self._loss(self._model, *self._batch).backward()
        self._optimizer.step()
        if self._on_gpu:
            import torch

            torch.cuda.synchronize()

    def close(self) -> None:
        pass


class _ArrayStepper:
    def __init__(self, models: list[Any], optimizer: Any, loss: Any, batch: Any, threads: int) -> None:
        from .._fuse import fuse, stack
        from .._step import StepRunner
        from ..jobs import Trainee
        from ..optim import ArrayOptimizer

        trainees = [Trainee(model, (loss,)) for model in models]
        array = fuse(trainees)
        own = [optimizer(trainee.parameters()) for trainee in trainees]
        self._batch = tuple(_mapped(lambda tensor: stack(tensor, len(models)), x) for x in batch)
        held = dict(zip(map(id, trainees[0].parameters()), array.parameters(), strict=True))
        trained = [held[id(p)] for group in own[0].param_groups for p in group["params"]]
        made = ArrayOptimizer.from_models(own, trained)
        self._runner = StepRunner(array, made, _losses, threads=threads)

    @property
    def settled(self) -> bool:
        return self._runner.settled

    def step(self) -> None:
        self._runner.step(*self._batch)
        self._runner.synchronize()

    def close(self) -> None:
        self._runner.close()


def _losses(array: Any, *batch: Any) -> Any:
    return array(0, *batch)
