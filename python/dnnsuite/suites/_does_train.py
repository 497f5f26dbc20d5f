# SPDX-License-Identifier: MIT
"""Checks that a job trains: its weights change, its loss varies, its steps are not skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._lazy import torch
from .._runs.failures import NotTraining
from ._method import Observations

if TYPE_CHECKING:
    from ..jobs import Job

_MANY = 0.1  # share of skipped steps that a reader must know of


def fingerprints(job: Job) -> list[tuple[float, float]]:
    """Sum and norm of each weight, which an optimizer's step changes."""
    weights = job.weights() if job.trains else []
    if not weights:
        return []
    with torch.no_grad():
        return [(float(weight.sum(dtype=torch.float64)), float(weight.norm(dtype=torch.float64))) for weight in weights]


def check_training(job: Job, before: list[tuple[float, float]], seen: Observations) -> dict[str, Any]:
    """Record the training: weights, changed weights, share of skipped steps, flags.

    Args:
        before: fingerprints of the weights before the observations.

    Raises:
        NotTraining: no weight changed, or every batch had the same loss.
    """
    tried = job.steps_tried
    skipped = job.steps_skipped / tried if tried else 0.0
    changed = sum(now != then for now, then in zip(fingerprints(job), before, strict=True))
    if before and not changed:
        why = f"; the loss scale left out {job.steps_skipped} of {tried} steps" if job.steps_skipped else ""
        raise NotTraining(f"none of its {len(before)} weights changed in {_batches(seen)} batches{why}")
    if job.trains and _batches(seen) > 1 and seen.lowest_loss == seen.highest_loss:
        raise NotTraining(f"the loss of all {_batches(seen)} batches is {seen.lowest_loss}")
    return {
        "weights": len(before),
        "changed": changed,
        "skipped_steps": skipped,
        "flags": ["many steps skipped for the loss scale"] if skipped > _MANY else [],
    }


def _batches(seen: Observations) -> int:
    return len(seen.starts_ns) * seen.number
