# SPDX-License-Identifier: MIT
"""The fused form of a declared workload against B plain models, trained by the plain form of the same declaration."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from ._separate import Tolerance, compare, share_masks, update_error
from ._workload import JobConfig

if TYPE_CHECKING:
    from .declared_job import DeclaredJob

_EPOCH_STEPS = 5  # after which the schedules go on
_TOLERANCES = {
    "fp64": Tolerance(loss=1e-6, update=1e-5),  # hyperparameters of an array have 24 bits
    "fp32": Tolerance(loss=1e-4, update=1e-2),
    "amp": Tolerance(loss=3e-2, update=0.3),
    "bf16": Tolerance(loss=3e-2, update=0.3),
}
_METHOD = "torch.nn layers and torch.optim.{}, one model at a time, same batches and dropout masks"


def check(kind: type[DeclaredJob], config: JobConfig, steps: int) -> dict[str, Any]:
    """Train `config.B` models as one array and one by one, and compare losses and what the models became.

    Same seeds, data, hyperparameters and dropout masks; the schedules go on every few steps. Passed if no loss, and no
    model's whole update (parameters and buffers), differs by more than the tolerance of the precision.
    """
    job = kind(config)
    try:
        job.setup()
        fused = _losses(job, steps)
        alone = [_alone(job, i, steps) for i in range(config.B)]
    finally:
        job.close()
    separate = [list(row) for row in zip(*(losses for losses, _ in alone), strict=True)]
    record = compare(fused, separate, [error for _, error in alone], _TOLERANCES[config.precision])
    return {**record, "method": _METHOD.format(kind.workload.optimizer.name)}


def _alone(job: DeclaredJob, index: int, steps: int) -> tuple[list[float], float]:
    """Losses of model `index` trained alone, and the distance of the array's model from it."""
    config = job.config
    hyper = {name: [values[index]] for name, values in job.hyper.items()}
    alone = type(job)(replace(config, B=0, seed=config.seed + index, hyper=hyper))
    alone.batches = job.batches
    try:
        alone.setup()
        share_masks(alone.trainee, job.trainee, config.seed + index)
        start = {name: x.clone() for name, x in _fractions(alone.trainee).items()}
        losses = [row[0] for row in _losses(alone, steps)]
        separate = _fractions(alone.trainee)
    finally:
        alone.close()
    fused = _fractions(job.trainee)
    rows = [(fused[name][index], x, start[name]) for name, x in separate.items()]
    return losses, update_error(*zip(*rows, strict=True))


def _losses(job: DeclaredJob, steps: int) -> list[list[float]]:
    """Losses [step][model] of the first steps."""
    found = []
    for step in range(1, steps + 1):
        job.step()
        job.synchronize()
        found.append(job.losses())
        if step % _EPOCH_STEPS == 0:
            job.end_epoch()
    return found


def _fractions(trainee: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by name, but for those that count."""
    return {name: x for name, x in trainee.state_dict().items() if x.is_floating_point()}
