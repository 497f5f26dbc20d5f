# SPDX-License-Identifier: MIT
"""A job that trains nothing is no measurement of training."""

from typing import Any, ClassVar

import pytest
import torch

from dnnsuite._runs.failures import FINAL, NotTraining, classify
from dnnsuite.jobs import JobConfig, PlainJob
from dnnsuite.suites._does_train import check_training, fingerprints
from dnnsuite.suites._method import observe


class Line(PlainJob):
    """A line fitted to noise."""

    name, description, unit = "line", "a line", "points"

    defaults: ClassVar[dict[str, Any]] = {"batch_size": 4, "repeat": 4, "number": 2, "lr": 0.1}
    smoke: ClassVar[dict[str, Any]] = {}

    def setup(self) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Linear(2, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), self.options["lr"])
        self.scale = 1.0

    def batch(self) -> torch.Tensor:
        return torch.randn(4, 2)

    def train(self, batch: torch.Tensor) -> torch.Tensor:
        loss = (self.model(batch) * self.scale).square().mean()
        self.update(loss, self.optimizer)
        return loss

    def provenance(self) -> dict[str, Any]:
        return {}


def made(kind: type[Line] = Line, **config: Any) -> Line:
    job = kind(JobConfig(batch_size=4, **config))
    job.setup()
    return job


def check(job: Line) -> dict[str, Any]:
    before = fingerprints(job)
    return check_training(job, before, observe(job, 4, 2))


def test_a_job_that_trains() -> None:
    assert check(made()) == {"weights": 2, "changed": 2, "skipped_steps": 0.0, "flags": []}


def test_weights_that_stay_are_invalid() -> None:
    with pytest.raises(NotTraining, match="none of its 2 weights changed in 8 batches") as raised:
        check(made(options={"lr": 0.0}))
    assert classify(raised.value) == "invalid"
    assert "invalid" in FINAL


def test_a_loss_that_is_always_the_same_is_invalid() -> None:
    class Same(Line):
        def train(self, batch: torch.Tensor) -> torch.Tensor:
            return super().train(batch) * 0 + 2.5

    with pytest.raises(NotTraining, match=r"the loss of all 8 batches is 2\.5"):
        check(made(Same))


class Steep(Line):
    """Its gradients overflow as long as the loss scale is above 2."""

    def train(self, batch: torch.Tensor) -> torch.Tensor:
        loss = self.model(batch).square().mean()
        self.optimizer.zero_grad()
        self.backward(loss)
        if self._scaler.get_scale() > 2:
            self.model.weight.grad.fill_(torch.inf)
        self.advance(self.optimizer)
        return loss


def test_steps_that_the_loss_scale_leaves_out_are_counted() -> None:
    job = made(Steep, precision="fp16")
    with pytest.raises(NotTraining, match="the loss scale left out 8 of 8 steps"):
        check(job)
    job = made(Steep, precision="fp16")
    job.settle_loss_scale()
    assert check(job)["skipped_steps"] == 0.0
    assert job.steps_tried == 8


def test_a_share_of_skipped_steps_is_flagged() -> None:
    class Sometimes(Line):
        def train(self, batch: torch.Tensor) -> torch.Tensor:
            self.scale = torch.inf if self.steps_tried in (1, 2, 3) else 1.0
            loss = super().train(batch)
            return loss.nan_to_num(posinf=1.0)

    job = made(Sometimes, precision="fp16")
    found = check(job)
    assert found["skipped_steps"] == 3 / 8
    assert found["flags"] == ["many steps skipped for the loss scale"]


def test_what_has_no_weights_is_not_asked_for_them() -> None:
    class Reader(Line):
        trains = False

        def train(self, batch: torch.Tensor) -> torch.Tensor:
            return torch.zeros(())

    assert check(made(Reader))["weights"] == 0
