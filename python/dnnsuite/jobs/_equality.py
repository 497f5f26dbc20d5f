# SPDX-License-Identifier: MIT
"""Comparison of a declared workload's array with B plain models, trained from the same declaration.

Each step is compared closely, starting from the array's state (`_same_state`). Two independent trainings drift apart by
rounding alone: a ReLU flips, and Adam takes a full step on a gradient next to zero. They are compared in the first
steps only; their losses are recorded to the end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ._job import JobConfig
from ._same_state import Alone, Bounds, Difference, Follower, advance
from ._separate import Tolerance, share_masks, update_error

if TYPE_CHECKING:
    from .declared_job import DeclaredJob

_EPOCH_STEPS = 5  # after which the schedules go on
_EARLY_STEPS = 3  # of free training, which are compared, too
_NEARBY = (1, 2, 4, 8)  # roundings from which other free trainings begin, where the first control was too lucky
_FACTOR = 30.0  # of the control is allowed there: the array rounds elsewhere
_TOLERANCES = {  # the least that is allowed of free training
    "fp64": Tolerance(loss=1e-6, update=5e-3),
    "fp32": Tolerance(loss=1e-4, update=1e-2),
    "amp": Tolerance(loss=3e-2, update=0.3),
    "bf16": Tolerance(loss=3e-2, update=0.3),
}
_BOUNDS = {  # of one step from the same state
    "fp64": Bounds(step=1e-9, control=30.0, rounding=3e-16),
    "fp32": Bounds(step=1e-4, control=30.0, rounding=2e-7),
    "amp": Bounds(step=0.1, control=10.0, rounding=2e-3),
    "bf16": Bounds(step=0.1, control=10.0, rounding=2e-3),
}
_METHOD = (
    "torch.nn layers and torch.optim.{}, one model at a time, same batches and dropout masks; every step is compared "
    "from the array's state, and the first {} of free training from the same weights"
)
State = dict[str, torch.Tensor]


class Trained(NamedTuple):
    """Losses of one model in each step of independent training, its state before the first and after the early
    steps."""

    losses: list[float]
    start: State
    end: State


class Distance(NamedTuple):
    """Relative distance of a model's losses [step] from another's, and of its update after the early steps."""

    losses: list[float]
    update: float


class Worst(NamedTuple):
    """Largest difference of a step from the same state, in units of its bound, and its place."""

    step: int
    model: int
    difference: Difference


def check(kind: type[DeclaredJob], config: JobConfig, steps: int) -> dict[str, Any]:
    """Train `config.B` models as one array and one by one; compare losses and updates.

    Seeds, data, hyperparameters and dropout masks are the same; the schedules advance every few steps. Passed if the
    loss, every tensor's change and the optimizer's state of each step are within bounds of a plain model's that starts
    the step from the array's state, and the first losses and updates are within bounds of independently trained
    models'.
    """
    job, early = kind(config), min(steps, _EARLY_STEPS)
    try:
        job.setup()
        fused, worst = _followed(job, steps)
        plain = [_alone(job, i, steps, config.precision) for i in range(config.B)]
        exact = [_alone(job, i, early, "fp64") for i in range(config.B)]
        tolerance, bounds = _TOLERANCES[config.precision], _BOUNDS[config.precision]
        found = [_distance(a, b) for a, b in zip(fused, plain, strict=True)]
        control = [_distance(a, b) for a, b in zip(plain, exact, strict=True)]
        message = _step_excess(worst)
        if not message and _excess(found, control, tolerance):  # as far as rounding leads, or further?
            control += _nearby(job, plain, early)
        message = message or _excess(found, control, tolerance)
    finally:
        job.close()
    return {
        "passed": not message,
        **({"message": message} if message else {}),
        "tolerance": tolerance.loss,
        "max_relative_error": _largest(x for d in found for x in d.losses[:early]),
        "update_tolerance": tolerance.update,
        "max_update_error": _largest(d.update for d in found),
        "control": {
            "max_relative_error": _largest(x for d in control for x in d.losses),
            "max_update_error": _largest(d.update for d in control),
        },
        "step_tolerance": bounds.step,
        "worst_step": _recorded(worst),
        "steps": steps,
        "models": config.B,
        "losses_fused": _by_step(fused),
        "losses_separate": _by_step(plain),
        "method": _METHOD.format(" and ".join(dict.fromkeys(x.optimizer.name for x in kind.workload.groups())), early),
    }


def _recorded(worst: Worst) -> dict[str, Any]:
    of, error, allowed = worst.difference
    return {"step": worst.step, "model": worst.model, "of": of, "error": error, "allowed": allowed}


def _step_excess(worst: Worst) -> str:
    """Describe a difference of one step above its bound, as a sentence; empty if there is none."""
    if worst.difference.excess <= 1.0:
        return ""
    of, error, allowed = worst.difference
    return (
        f"the {of} of model {worst.model} differs by {error:.2g} in step {worst.step}, started from the same state; "
        f"allowed is {allowed:.2g}"
    )


def _excess(found: Sequence[Distance], control: Sequence[Distance], tolerance: Tolerance) -> str:
    """Describe the first place where an independently trained model is beyond its bound; empty if there is none."""
    drift, early = 0.0, len(control[0].losses)
    for step in range(early):
        drift = max([drift, *(c.losses[step] for c in control)])
        allowed = max(tolerance.loss, _FACTOR * drift)
        for model, its in enumerate(found):
            if not its.losses[step] <= allowed:  # also where one is NaN
                return _sentence("loss", model, its.losses[step], step + 1, allowed)
    allowed = max([tolerance.update, *(_FACTOR * c.update for c in control)])
    for model, its in enumerate(found):
        if not its.update <= allowed:
            return _sentence("update", model, its.update, early, allowed)
    return ""


def _sentence(what: str, model: int, error: float, step: int, allowed: float) -> str:
    return (
        f"the {what} of model {model} differs by {error:.2g} after step {step} of free training, "
        f"allowed is {allowed:.2g}"
    )


def _largest(values: Iterable[float]) -> float:
    """Return the largest; NaN if one is NaN."""
    found = list(values)
    return float("nan") if any(value != value for value in found) else max(found)


def _distance(model: Trained, other: Trained) -> Distance:
    """Distance of `model` from `other`, which may have made fewer steps."""
    pairs = zip(model.losses, other.losses, strict=False)
    losses = [abs(a - b) / max(abs(b), 1e-12) for a, b in pairs]
    states = (list(s.values()) for s in (model.end, other.end, other.start))
    return Distance(losses, update_error(*states))


def _plain(job: DeclaredJob, index: int, precision: str) -> Alone:
    """Make a job of model `index` of `job`, ready to step; the caller closes it.

    It has one thread: for so small a model, threads that wait for each other on a busy machine cost more than they
    bring.
    """
    config = job.config
    hyper = {name: [values[index]] for name, values in job.hyper.items()}
    alone = type(job)(replace(config, B=0, seed=config.seed + index, hyper=hyper, precision=precision, threads=1))
    alone.batches = job.batches
    alone.setup()
    return Alone(alone, share_masks(alone.trainee, job.trainee, config.seed + index))


def _nearby(job: DeclaredJob, plain: Sequence[Trained], steps: int) -> list[Distance]:
    """Compute the distances of models trained independently from weights changed by a rounding."""
    rounding = _BOUNDS[job.config.precision].rounding
    return [
        _distance(_alone(job, i, steps, job.config.precision, size * rounding, seed), one)
        for i, one in enumerate(plain)
        for seed, size in enumerate(_NEARBY)
    ]


def _alone(job: DeclaredJob, index: int, steps: int, precision: str, rounding: float = 0.0, seed: int = 0) -> Trained:
    """Train model `index` of `job` independently, from weights changed by `rounding`."""
    with contextlib.closing(_plain(job, index, precision).job) as alone:
        if rounding:
            _round(alone.trainee, rounding, seed)
        names = _floats(alone)
        start = end = _states(alone, names)[0]
        losses = []
        for step in range(1, steps + 1):
            losses.append(advance(alone))
            if step == min(steps, _EARLY_STEPS):
                end = _states(alone, names)[0]
            if step % _EPOCH_STEPS == 0:
                alone.end_epoch()
        return Trained(losses, start, end)


@torch.no_grad()
def _round(trainee: torch.nn.Module, rounding: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in trainee.parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.mul_((1 + rounding * noise).to(parameter))


def _followed(job: DeclaredJob, steps: int) -> tuple[list[Trained], Worst]:
    """Train an array, and let plain models make each of its steps from its state."""
    worst = Worst(0, 0, Difference("", 0.0, 1.0))
    losses: list[list[float]] = []
    with contextlib.ExitStack() as opened:
        followers = [_follower(job, i, opened) for i in range(job.config.B)]
        names = _floats(job)
        start = end = _states(job, names)
        for step in range(1, steps + 1):
            for follower in followers:
                follower.look()
            job.step()
            job.synchronize()
            losses.append(job.losses())
            for i, follower in enumerate(followers):
                found = Worst(step, i, follower.compare())
                worst = max(worst, found, key=lambda each: each.difference.excess)
            if worst.difference.excess > 1.0:  # proven: later steps are recorded, and not compared any more
                followers = []
            if step == min(steps, _EARLY_STEPS):
                end = _states(job, names)
            if step % _EPOCH_STEPS == 0:
                job.end_epoch()
                for follower in followers:
                    follower.end_epoch()
    return [Trained(list(row), *both) for row, *both in zip(zip(*losses, strict=True), start, end, strict=True)], worst


def _follower(job: DeclaredJob, index: int, opened: contextlib.ExitStack) -> Follower:
    plain, exact = (_plain(job, index, precision) for precision in (job.config.precision, "fp64"))
    for alone in (plain, exact):
        opened.callback(alone.job.close)
    return Follower(job, index, plain, exact, _BOUNDS[job.config.precision])


def _floats(job: DeclaredJob) -> list[str]:
    """List the parameters and floating buffers of a plain model."""
    return [name for name, x in job.build(0).state_dict().items() if x.is_floating_point()]


def _states(job: DeclaredJob, names: Sequence[str]) -> list[State]:
    """Copy each model's tensors of these names."""
    now = job.trainee.state_dict()
    if job.config.B == 0:
        return [{name: now[name].double().clone() for name in names}]
    return [{name: now[name][i].double().clone() for name in names} for i in range(job.config.B)]


def _by_step(models: Sequence[Trained]) -> list[list[float]]:
    return [list(row) for row in zip(*(model.losses for model in models), strict=True)]
