# SPDX-License-Identifier: MIT
"""Losses of every iteration, of models that train alone and of the same models in one array.

All start from the same weights, see the same batches and draw the same dropout masks, so only rounding tells them
apart. `control` is a model alone in float64, which is as good as exact: how much rounding does. In float64 itself it is
one whose sums are taken in another order, to see how far two right runs drift apart by rounding alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from .. import _fuse
from .._torch import TorchDispatchMode
from ..errors import InvalidArgument
from ._job import JobConfig, get
from ._separate import share_masks

aten = torch.ops.aten


class ReorderedSums(TorchDispatchMode):
    """Context manager: matrix products and convolutions form their sums in reverse order.

    Products run over their inner dimension backwards, ungrouped convolutions over their input channels, gradients of
    convolutions over the batch. Everything else is computed as before, random numbers too. Backward passes inside
    the block count.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        other = _OTHERS.get(func)
        if other is not None:
            return other(func, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _product(func: Any, a: torch.Tensor, b: torch.Tensor) -> Any:
    return func(a.flip(-1), b.flip(-2))


def _added_product(func: Any, bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor, **scales: Any) -> Any:
    return func(bias, a.flip(-1), b.flip(-2), **scales)


def _convolution(func: Any, x: torch.Tensor, weight: torch.Tensor, bias: Any, *settings: Any) -> Any:
    transposed, groups = settings[3], settings[5]
    if groups == 1:
        x, weight = x.flip(1), weight.flip(0 if transposed else 1)
    return func(x, weight, bias, *settings)


def _convolution_backward(func: Any, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, *settings: Any) -> Any:
    grad_x, grad_weight, grad_bias = func(grad.flip(0), x.flip(0), weight, *settings)
    return None if grad_x is None else grad_x.flip(0), grad_weight, grad_bias


_OTHERS: dict[Any, Callable[..., Any]] = {
    aten.mm.default: _product,
    aten.bmm.default: _product,
    aten.addmm.default: _added_product,
    aten.baddbmm.default: _added_product,
    aten.convolution.default: _convolution,
    aten.convolution_backward.default: _convolution_backward,
}


Way = Literal["serial", "control", "hfta"]
#: Numbers that stand for a model's weights: the distance of two sketches is that of the weights within about 2 %.
SKETCH = 4096


@dataclass(frozen=True)
class Trajectory:
    """The training of some models.

    Attributes:
        losses: [iteration][model].
        start, end: a sketch of each model's parameters, before and after.
        accuracy: accuracy of each model on held-out data; None where the job has none.
        provenance: provenance of the job's data.
    """

    losses: list[list[float]]
    start: list[list[float]]
    end: list[list[float]]
    accuracy: list[float] | None
    provenance: dict[str, Any]


def default_rates(job: str, models: int) -> list[float]:
    """Learning rates for a number of models: the job's own, and each half of the one before.

    Raises:
        InvalidArgument: the job has no learning rate.
    """
    workload = getattr(get(job, swept=True), "workload", None)
    rate = None if workload is None else workload.hyper.get("lr")
    if rate is None:
        raise InvalidArgument(f"job {job} has no hyperparameter lr: name values with --lrs")
    return [float(rate) / 2**index for index in range(models)]


def train(
    job: str,
    config: JobConfig,
    way: Way,
    iterations: int,
    iters_per_epoch: int,
    ready: Callable[[], None] = lambda: None,
) -> Trajectory:
    """Train the models of `config`, which has one value of each hyperparameter per model.

    Args:
        job: a declared workload's name.
        config: `B` is the number of models, whichever way they train.
        way: `hfta` is one array, `serial` the models one after the other, `control` that in float64.
        iterations: training steps of each model.
        iters_per_epoch: iterations after which the learning-rate schedule advances.
        ready: called when the first model is set up.
    """
    kind = _same_start(_declared(job))
    if way == "hfta":
        with closing(kind(config)) as array:
            return _trained(array, iterations, iters_per_epoch, ready)
    parts: list[Trajectory] = []
    sums: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if way == "control" and config.precision == "fp64":
        sums = ReorderedSums()
    elif way == "control":
        config = replace(config, precision="fp64")
    for index in range(config.B):
        with _one(kind, config, index) as model, sums:
            parts.append(_trained(model, iterations, iters_per_epoch, ready if index == 0 else lambda: None))
    return _joined(parts)


def _declared(job: str) -> Any:
    kind = get(job, swept=True)
    if not hasattr(kind, "workload"):
        raise InvalidArgument(f"job {job} is not a declared workload (dnnsuite.jobs.declare), which this needs")
    return kind


def _same_start(kind: Any) -> Any:
    """Derive a job whose models all start from the weights of the first."""

    def build(self: Any, index: int) -> Any:
        model = kind.build(self, index)
        if index:
            model.load_state_dict(kind.build(self, 0).state_dict())
        return model

    return type(kind.__name__, (kind,), {"build": build, "__module__": kind.__module__})


@contextlib.contextmanager
def _one(kind: Any, config: JobConfig, index: int) -> Iterator[Any]:
    """Model `index` alone, with the dropout masks that it draws in the array."""
    hyper = {name: [values[index]] for name, values in config.hyper.items()}
    with closing(kind(replace(config, B=0, hyper=hyper))) as job:
        job.setup()
        share_masks(job.trainee, _fuse.fuse([job.trainee]), config.seed + index)
        yield job


def _trained(job: Any, iterations: int, iters_per_epoch: int, ready: Callable[[], None]) -> Trajectory:
    if job.batches is None:
        job.setup()
    models = job.config.models
    start = _sketches(job.trainee, job.config.B, models)
    ready()
    losses = []
    for iteration in range(1, iterations + 1):
        job.step()
        losses.append(job.losses())
        if iteration % iters_per_epoch == 0:
            job.end_epoch()
    job.synchronize()
    end = _sketches(job.trainee, job.config.B, models)
    metric = job.workload.metric
    scores = job.held_out_metric() if metric is not None and metric.name == "accuracy" else None
    return Trajectory(losses, start, end, scores, job.provenance())


def _joined(parts: list[Trajectory]) -> Trajectory:
    scores = [part.accuracy for part in parts]
    return Trajectory(
        [[row[0] for row in rows] for rows in zip(*(part.losses for part in parts), strict=True)],
        [part.start[0] for part in parts],
        [part.end[0] for part in parts],
        None if None in scores else [score[0] for score in scores if score is not None],
        parts[0].provenance,
    )


@torch.no_grad()
def _sketches(trainee: torch.nn.Module, B: int, models: int) -> list[list[float]]:
    """Compute a count sketch of each model's parameters: each number is added, with a random sign, to one of
    `SKETCH`."""
    found = torch.zeros(models, SKETCH, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    for _, parameter in sorted(trainee.named_parameters()):
        values = parameter.detach().cpu().double()
        values = values.reshape(models, -1)
        place = torch.randint(SKETCH, (values.size(1),), generator=generator)
        sign = torch.randint(2, (values.size(1),), generator=generator).double() * 2 - 1
        found.index_add_(1, place, values * sign)
    return [list(row) for row in found.tolist()]
