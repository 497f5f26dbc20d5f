# SPDX-License-Identifier: MIT
"""A job that trains nothing is no measurement of training."""

import dataclasses
from typing import Any

import pytest
import torch

from dnnsuite import jobs
from dnnsuite._runs.failures import FINAL, NotTraining, classify
from dnnsuite.data.batches import BatchesInTurn
from dnnsuite.jobs import JobConfig, Made, Preset, Workload
from dnnsuite.suites._method import check_training, fingerprints, observe


def points(config: JobConfig, options: Any) -> BatchesInTurn:
    """Points `[4, 2]`, and 0 for batches 1 to 3 alone, else 1."""
    return BatchesInTurn(
        lambda: iter([(torch.randn(4, 2), torch.tensor(float(not 1 <= i <= 3))) for i in range(99)]).__next__, {}
    )


def squared(model: Any, x: torch.Tensor, ones: torch.Tensor) -> torch.Tensor:
    return model(x).square().mean()


LINE = Workload(
    name="line", description="a line fitted to noise", unit="points", options={}, hyper={"lr": 0.1},
    model=lambda options, hyper: torch.nn.Linear(2, 1), data=points, loss=squared,
    optimizer=Made("SGD", {"lr": "lr"}), presets={"default": Preset(1, 8, batch_size=4)},
)  # fmt: skip


def made(lr: float = 0.1, precision: str = "fp32", **changes: Any) -> jobs.DeclaredJob:
    body = {"workload": dataclasses.replace(LINE, **changes), "name": "line", "unit": "points"}
    job = type("Line", (jobs.DeclaredJob,), body)(JobConfig(batch_size=4, precision=precision, hyper={"lr": [lr]}))
    job.setup()
    return job


def check(job: jobs.Job) -> dict[str, Any]:
    before = fingerprints(job)
    return check_training(job, before, observe(job, 4, 2))


def test_a_job_that_trains() -> None:
    assert check(made()) == {"weights": 2, "changed": 2, "skipped_steps": 0.0, "flags": []}


def test_weights_that_stay_are_invalid() -> None:
    with pytest.raises(NotTraining, match="none of its 2 weights changed in 8 batches") as raised:
        check(made(lr=0.0))
    assert classify(raised.value) == "invalid"
    assert "invalid" in FINAL


def test_a_loss_that_is_always_the_same_is_invalid() -> None:
    with pytest.raises(NotTraining, match=r"the loss of all 8 batches is 2\.5"):
        check(made(loss=lambda model, x, ones: model.weight.sum() * 1e-3 - (model.weight.sum() * 1e-3).detach() + 2.5))


def steep(model: Any, x: torch.Tensor, ones: torch.Tensor) -> torch.Tensor:
    """Its gradients overflow as long as the loss scale is above some hundreds."""
    return (model.weight - x).float().abs().mean() * 1e36


def test_steps_that_the_loss_scale_leaves_out_are_counted() -> None:
    with pytest.raises(NotTraining, match=r"the loss scale left out 8 of 8 steps"):
        check(made(1e-38, "fp16", loss=steep, loss_scale=2.0**30))
    job = made(1e-38, "fp16", loss=steep)
    job.settle_loss_scale()
    assert check(job)["skipped_steps"] == 0.0
    assert job.steps_tried == 8


def test_a_share_of_skipped_steps_is_flagged() -> None:
    def sometimes(model: Any, x: torch.Tensor, ones: torch.Tensor) -> torch.Tensor:
        return squared(model, x, ones) + (model.weight.square().sum() * ones).sqrt()  # of which 0 has no gradient

    found = check(made(precision="fp16", loss=sometimes, loss_scale=1.0))
    assert found["skipped_steps"] == 3 / 8
    assert found["flags"] == ["many steps skipped for the loss scale"]


def test_what_has_no_weights_is_not_asked_for_them() -> None:
    job = made()
    job.trains = False  # type: ignore[misc]
    assert check(job)["weights"] == 0
