# SPDX-License-Identifier: MIT
"""Measurement for advice: a few interleaved steps of one plain model and of small arrays, in this process."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from .._runs.monitor import Cores, all_cores, free_cores
from .._runs.turn_session import Way, take_turns_here
from .._runs.turns import Goal
from .._runs.worker import settle
from .._torch_threads import torch_threads
from ..errors import InvalidArgument
from .advice import Limits, Measured

if TYPE_CHECKING:
    import torch

    from ..jobs import JobConfig

BS = (1, 2, 4)
_LEAST_WARM_UP = 16
_BUDGET_S = 20.0
_GEMM = 768
_FREE = 0.8  # of the free memory is used; the rest is for what else the process holds


class Stepper(Protocol):
    """One way to train: a plain model, or an array. It may have `settled`, as :func:`settle` asks for."""

    def step(self) -> None:
        """Train one step."""

    def synchronize(self) -> None:
        """Wait until all steps are done."""

    def close(self) -> None:
        """Free threads."""


class Subject(Protocol):
    """The models that advice is asked for."""

    device: str

    def stepper(self, B: int, threads: int) -> Stepper:
        """Return an array of B models, or with 0 one plain model."""

    def plain_step(self) -> tuple[Callable[[], Any], Any]:
        """Return (function that makes a forward and backward of one plain model, the model)."""


@dataclass(frozen=True)
class Measurement:
    """Seconds of a step: of one plain model with all threads, with one thread, of arrays by B; and the limits.

    Attributes:
        cores: CPUs that it was measured on.
        unknown: reason that the steps are not known; empty where they are.
    """

    plain: Measured
    alone: Measured | None
    arrays: Mapping[int, Measured]
    limits: Limits
    threads: int
    cores: Cores
    unknown: str = ""


def measure(subject: Subject, threads: int, Bs: tuple[int, ...] = BS, budget_s: float = _BUDGET_S) -> Measurement:
    """Measure a plain model and arrays of `Bs` models with `threads` CPU threads; they take turns.

    Fewer threads are used where neighbours do not leave so many cores free.
    """
    on_cpu = not subject.device.startswith("cuda")
    cores = free_cores(threads) if on_cpu else all_cores()
    if cores.shared:
        threads = min(threads, len(cores.cpus))
    by_cpu_time = on_cpu and threads == 1  # what one thread works is not lengthened by others that wait for its core
    with contextlib.ExitStack() as open_ways, torch_threads(threads):
        steppers: dict[Any, Stepper] = {}
        for B in (0, *Bs):
            steppers[B] = subject.stepper(B, threads)
            open_ways.callback(steppers[B].close)
        for stepper in steppers.values():
            settle(stepper, _LEAST_WARM_UP)
        ways: dict[Any, Way] = {B: _repeated(stepper, threads) for B, stepper in steppers.items()}
        if on_cpu and threads > 1:
            ways["alone"] = _repeated(steppers[0], 1)
        found = take_turns_here(
            ways, Goal(budget_s=budget_s), 0, cores=cores, clock=_clock(threads if on_cpu else 0),
            by_cpu_time=by_cpu_time,
        )  # fmt: skip
    rate = found.rate(0)
    plain = Measured(1 / rate.value, 1 / rate.high, 1 / rate.low)
    ratios = {name: found.ratio(name) for name in ways if name != 0}
    unknown = next((ratio.reason() for ratio in ratios.values() if found.goal.verdict(ratio) == "inconclusive"), "")
    # Of the others from their ratios to the plain model's, which neighbours do not change.
    steps = {
        name: Measured(*(plain.seconds / value for value in (ratio.value, ratio.high, ratio.low)))
        for name, ratio in ratios.items()
    }
    return Measurement(
        plain,
        steps.get("alone"),
        {B: steps[B] for B in Bs},
        _limits(subject, threads),
        threads if on_cpu else 1,
        cores,
        unknown,
    )


def _repeated(stepper: Stepper, threads: int) -> Way:
    def run(steps: int) -> None:
        with torch_threads(threads):
            for _ in range(steps):
                stepper.step()
                stepper.synchronize()

    return run


def _clock(threads: int) -> Callable[[], float]:
    """Choose the clock for this number of CPU threads; 0 for a GPU."""
    return time.process_time if threads == 1 else time.perf_counter


def _limits(subject: Subject, threads: int) -> Limits:
    """Arithmetic and memory of one model's step: operations counted, tensors that the backward pass keeps added up."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from .. import host

    run, model = subject.plain_step()
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with FlopCounterMode(display=False) as counter, torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        run()
    parameters = list(model.parameters())
    own = {p.untyped_storage().data_ptr() for p in parameters}
    activations = sum(size for address, size in kept.items() if address not in own)
    weights = sum(p.numel() * p.element_size() for p in parameters)
    device = torch.device(subject.device)
    if device.type == "cuda":
        free, peak = torch.cuda.mem_get_info(device)[0], 0.0
    else:
        free, peak = host.available_memory_bytes(), _gemm_flop_per_s(parameters[0].dtype, threads)
    # Weights, their gradients, up to two states of an optimizer; gradients of activations live beside these.
    return Limits(counter.get_total_flops(), peak, 4 * weights + 2 * activations, int(_FREE * free))


def _gemm_flop_per_s(dtype: Any, threads: int) -> float:
    """Return the most that matrix products of this type do in a second, on these threads."""
    import torch

    clock = _clock(threads)
    with torch_threads(threads):
        a, b = torch.randn(2, _GEMM, _GEMM).to(dtype if dtype.is_floating_point else torch.float32)
        times = []
        for _ in range(6):
            begin = clock()
            torch.mm(a, b)
            times.append(clock() - begin)
    return 2 * _GEMM**3 / min(times)


_BATCHES = 4  # that are kept on the device, so that no loader is measured


class JobSubject:
    """A declared job with the hyperparameters of its declaration."""

    def __init__(self, job: str, config: JobConfig) -> None:
        from .. import jobs

        self._kind, self._config, self.device = jobs.get(job, swept=True), config, config.device

    def plain_step(self) -> tuple[Callable[[], Any], Any]:
        job = self.stepper(0, 0)
        return job.step, job.model

    def stepper(self, B: int, threads: int) -> Any:
        job = self._kind(replace(self._config, B=B, threads=threads or None))
        job.setup()
        job.hold_batches(_BATCHES)
        return job


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
        models = [copy.deepcopy(self._models[i % len(self._models)]) for i in range(B)]
        return _ArrayStepper(models, self._optimizer, self._loss, self._batch, threads)

    def plain_step(self) -> tuple[Callable[[], Any], Any]:
        model = copy.deepcopy(self._models[0])
        return lambda: self._loss(model, *self._batch).backward(), model


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
    def __init__(self, model: Any, optimizer: Any, loss: Any, batch: Any, device: str) -> None:
        self._model, self._optimizer, self._loss, self._batch = model, optimizer, loss, batch
        self._on_gpu = device.startswith("cuda")

    def step(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        self._loss(self._model, *self._batch).backward()
        self._optimizer.step()

    def synchronize(self) -> None:
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
        self._runner = StepRunner(array, made, lambda array, *batch: array(0, *batch), threads=threads)
        self.synchronize, self.close = self._runner.synchronize, self._runner.close

    @property
    def settled(self) -> bool:
        return self._runner.settled

    def step(self) -> None:
        self._runner.step(*self._batch)
