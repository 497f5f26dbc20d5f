# SPDX-License-Identifier: MIT
"""The fused form of a declared workload against B plain models, trained by the plain form of the same declaration.

Rounding alone drives two trainings apart: a ReLU flips, and Adam takes a whole step on a gradient that is next to zero.
So the first steps are compared closely, and more is allowed later: a tolerance that grows, or some times the distance
of the plain models from themselves in float64 (the control).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ._separate import Tolerance, share_masks, update_error
from ._workload import JobConfig

if TYPE_CHECKING:
    from .declared_job import DeclaredJob

_EPOCH_STEPS = 5  # after which the schedules go on
_EARLY_STEPS = 3  # after which, and at the end, the updates are compared
_FACTOR = 30.0  # of the control: the array rounds elsewhere
_GROWTH, _SETTLED = 1.5, 5  # of the tolerance of losses, in each step after so many
_LATE = 10.0  # times the tolerance of an update is allowed at the end
_TOLERANCES = {  # the least that is allowed
    "fp64": Tolerance(loss=1e-6, update=5e-3),  # an array holds its constants in 24 bits
    "fp32": Tolerance(loss=1e-4, update=1e-2),
    "amp": Tolerance(loss=3e-2, update=0.3),
    "bf16": Tolerance(loss=3e-2, update=0.3),
}
_METHOD = (
    "torch.nn layers and torch.optim.{}, one model at a time, same batches and dropout masks; {:.0f} times the "
    "distance of the plain models from themselves in float64 is allowed"
)
State = dict[str, torch.Tensor]


class Trained(NamedTuple):
    """Losses of one model in each step, its state before, and what it was after some of the steps."""

    losses: list[float]
    start: State
    states: dict[int, State]


class Distance(NamedTuple):
    """Relative distance of a model's losses [step] from another's, and of its update after some of the steps."""

    losses: list[float]
    updates: dict[int, float]


def check(kind: type[DeclaredJob], config: JobConfig, steps: int) -> dict[str, Any]:
    """Train `config.B` models as one array and one by one, and compare losses and what the models became.

    Same seeds, data, hyperparameters and dropout masks; the schedules go on every few steps. Passed if no loss, and no
    model's whole update (parameters and buffers), differs by more than is allowed.
    """
    job = kind(config)
    try:
        job.setup()
        fused = _train(job, steps)
        plain, exact = (
            [_alone(job, i, steps, p) for i in range(config.B)] for p in (config.precision, "fp64")
        )
    finally:
        job.close()
    found = [_distance(a, b) for a, b in zip(fused, plain, strict=True)]
    control = [_distance(a, b) for a, b in zip(plain, exact, strict=True)]
    tolerance = _TOLERANCES[config.precision]
    message = _excess(found, control, tolerance)
    return {
        "passed": not message,
        **({"message": message} if message else {}),
        "tolerance": tolerance.loss,
        "max_relative_error": _largest(found, 0),
        "update_tolerance": tolerance.update,
        "max_update_error": _largest(found, 1),
        "control": {"max_relative_error": _largest(control, 0), "max_update_error": _largest(control, 1)},
        "steps": steps,
        "models": config.B,
        "losses_fused": _by_step(fused),
        "losses_separate": _by_step(plain),
        "method": _METHOD.format(kind.workload.optimizer.name, _FACTOR),
    }


def _excess(found: Sequence[Distance], control: Sequence[Distance], tolerance: Tolerance) -> str:
    """The first place where a model is further away than allowed, as a sentence; empty if there is none."""
    drift, steps = 0.0, len(found[0].losses)
    for step in range(1, steps + 1):
        drift = max([drift, *(c.losses[step - 1] for c in control)])
        loss = max(tolerance.loss * _GROWTH ** max(0, step - _SETTLED), _FACTOR * drift)
        least = tolerance.update * (1 if step <= _EARLY_STEPS else _LATE)
        update = max([least, *(_FACTOR * c.updates.get(step, 0.0) for c in control)])
        for model, its in enumerate(found):
            for what, error, allowed in (
                ("loss", its.losses[step - 1], loss),
                ("update", its.updates.get(step, 0.0), update),
            ):
                if not error <= allowed:  # also where one is NaN
                    return (
                        f"the {what} of model {model} differs by {error:.2g} after step {step}, "
                        f"allowed is {allowed:.2g}"
                    )
    return ""


def _largest(distances: Sequence[Distance], which: int) -> float:
    """The largest distance of losses (0) or of updates (1)."""
    values = [value for d in distances for value in (d.losses if which == 0 else d.updates.values())]
    return float("nan") if any(value != value for value in values) else max(values)


def _distance(model: Trained, other: Trained) -> Distance:
    losses = [abs(a - b) / max(abs(b), 1e-12) for a, b in zip(model.losses, other.losses, strict=True)]
    updates = {
        step: update_error(*(list(s.values()) for s in (state, other.states[step], other.start)))
        for step, state in model.states.items()
    }
    return Distance(losses, updates)


def _alone(job: DeclaredJob, index: int, steps: int, precision: str) -> Trained:
    """Model `index` of `job` trained alone."""
    config = job.config
    hyper = {name: [_as_held(values[index])] for name, values in job.hyper.items()}
    alone = type(job)(replace(config, B=0, seed=config.seed + index, hyper=hyper, precision=precision))
    alone.batches = job.batches
    try:
        alone.setup()
        share_masks(alone.trainee, job.trainee, config.seed + index)
        return _train(alone, steps)[0]
    finally:
        alone.close()


def _as_held(value: float) -> float:
    """A hyperparameter as an array holds it, in 24 bits."""
    return value if isinstance(value, int) else float(torch.tensor(value, dtype=torch.float32))


def _train(job: DeclaredJob, steps: int) -> list[Trained]:
    """Train the first steps; return what became of each model, by the names of the plain one."""
    names = [name for name, x in job.build(0).state_dict().items() if x.is_floating_point()]
    start = _states(job, names)
    losses: list[list[float]] = []
    states: list[dict[int, State]] = [{} for _ in range(job.config.models)]
    for step in range(1, steps + 1):
        job.step()
        job.synchronize()
        losses.append(job.losses())
        if step % _EPOCH_STEPS == 0:
            job.end_epoch()
        if step in (_EARLY_STEPS, steps):
            for place, state in enumerate(_states(job, names)):
                states[place][step] = state
    rows = zip(*losses, strict=True)
    return [
        Trained(list(row), *both) for row, both in zip(rows, zip(start, states, strict=True), strict=True)
    ]


def _states(job: DeclaredJob, names: Sequence[str]) -> list[State]:
    """Parameters and buffers of each model, but for those that count, as they are now."""
    now = job.trainee.state_dict()
    if job.config.B == 0:
        return [{name: now[name].double().clone() for name in names}]
    return [{name: now[name][i].double().clone() for name in names} for i in range(job.config.B)]


def _by_step(models: Sequence[Trained]) -> list[list[float]]:
    return [list(row) for row in zip(*(model.losses for model in models), strict=True)]
