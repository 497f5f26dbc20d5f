# SPDX-License-Identifier: MIT
"""Inherited by every job of the suite: precisions, loss scaling, clipping, the wait for data."""

import time
from typing import ClassVar

import pytest
import torch

from dnnsuite import jobs
from dnnsuite.jobs import PlainJob


class Small(PlainJob):
    name = description = unit = "small"

    defaults: ClassVar = {"batch_size": 4, "repeat": 2, "number": 2, "clip": None}
    smoke: ClassVar = {}

    def setup(self):
        torch.manual_seed(self.config.seed)
        self.model = torch.nn.Linear(8, 1).to(self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.seen = []
        self.model.register_forward_hook(lambda _module, _inputs, out: self.seen.append(out.dtype))

    def batch(self):
        time.sleep(0.002)
        return torch.ones(self.config.batch_size, 8, device=self.device)

    def train(self, batch):
        with self.autocast():
            loss = (self.model(batch).float() - 3).square().mean()
        self.update(loss, self.optimizer, self.options["clip"], self.model.parameters())
        return loss

    def provenance(self):
        return {}


def trained(precision, steps=3, **options):
    job = Small(jobs.JobConfig(batch_size=4, precision=precision, options=options))
    job.setup()
    for _ in range(steps):
        job.step()
    return job


@pytest.mark.parametrize(
    ("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_it_trains_in_each_precision(precision, dtype):
    job = trained(precision, steps=20)
    assert job.seen[0] == dtype
    assert job.losses()[0] < 0.1
    assert all(p.dtype == torch.float32 for p in job.model.parameters())


def test_gradients_are_clipped_after_the_loss_scale_is_taken_off():
    for precision in ("fp32", "fp16"):
        job = trained(precision, 0, clip=0.01)
        start = [p.detach().clone() for p in job.model.parameters()]
        moved = torch.zeros(())
        while not moved:  # while the scale is too large for fp16, steps are left out
            job.step()
            moves = [(p.detach() - q).flatten() for p, q in zip(job.model.parameters(), start, strict=True)]
            moved = torch.cat(moves).norm()
        assert float(moved) == pytest.approx(0.1 * 0.01, rel=1e-2)


def test_the_wait_for_data_is_split_out():
    assert trained("fp32", steps=3).data_wait_ns >= 3 * 2_000_000


def test_before_a_step_there_is_no_loss():
    assert trained("fp32", steps=0).losses() == []
