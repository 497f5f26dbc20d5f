# SPDX-License-Identifier: MIT
"""The equality check of declared workloads: small errors of one model, late in training."""

import pytest
import torch

from dnnsuite import jobs
from dnnsuite.data.batches import ArrayBatches
from dnnsuite.jobs import JobConfig, Made, Preset, Workload


def model(options, hyper):
    return torch.nn.Sequential(
        torch.nn.Linear(4, 8),
        torch.nn.BatchNorm1d(8),
        torch.nn.ReLU(),
        torch.nn.Dropout(hyper["dropout"]),
        torch.nn.Linear(8, 3),
    )


def data(config, options):
    generator = torch.Generator().manual_seed(config.data_seed)
    x = torch.randn(64, 4, generator=generator)
    return ArrayBatches(x, (x[:, 0] > 0).long(), batch_size=config.batch_size, seed=config.data_seed)


class Checked:
    """A workload whose array `harm`s itself, before or after a step."""

    harm_before = harm_after = staticmethod(lambda job, step: None)

    def step(self):
        number = self._number = getattr(self, "_number", 0) + 1
        if self.config.B:
            type(self).harm_before(self, number)
        super().step()
        if self.config.B:
            self.synchronize()
            type(self).harm_after(self, number)


SMALL = Workload(
    name="equality_of_small",
    description="a small classifier",
    unit="points",
    hyper={"lr": 0.01, "beta1": 0.9, "dropout": 0.25, "gamma": 0.5, "decay": 0.0},
    sample=lambda g: {"lr": 0.01, "beta1": 0.9, "dropout": 0.1, "gamma": 0.5, "decay": 0.0},
    model=model,
    data=data,
    loss=lambda model, x, y: torch.nn.functional.cross_entropy(jobs.widened(model(x)), y),
    optimizer=Made("Adam", {"lr": "lr", "betas": ("beta1", 0.99), "weight_decay": "decay"}),
    schedule=Made("StepLR", {"step_size": 1, "gamma": "gamma"}),
    presets={"default": Preset(2, 3, batch_size=8)},
)
STEPS = 8  # the schedules have gone on after five of them
HYPER = {
    "lr": [0.01, 0.05, 0.1],
    "beta1": [0.9, 0.5, 0.8],
    "dropout": [0.0, 0.2, 0.5],
    "gamma": [0.5, 0.9, 1.0],
    "decay": [0.0, 0.01, 0.1],
}


@pytest.fixture(scope="module")
def small():
    return jobs.declare(SMALL)


def checked(kind, before=None, after=None, precision="fp32"):
    harm = {"harm_before": before, "harm_after": after}
    broken = type("Broken", (Checked, kind), {name: staticmethod(f) for name, f in harm.items() if f is not None})
    config = JobConfig(B=3, batch_size=16, threads=1, precision=precision, hyper=HYPER)
    return broken.check_equality(config, steps=STEPS)


def rate(job, step):
    if step == 7:
        job.optimizers[0].param_groups[0]["lr"][1] *= 1.01


def beta(job, step):
    if step == 6:  # an epoch is over
        job.optimizers[0].param_groups[0]["beta1"][2] = 0.81


def variance(job, step):
    if step == 7:
        buffer = job.model[1].running_var
        with torch.no_grad():
            buffer[2] *= 1.001


def moment(job, step):
    if step == 6:
        weight = job.model[4].weight
        job.optimizers[0].state[weight]["exp_avg_sq"][0] *= 1.01


def one_weight(job, step):
    if step == 7:
        with torch.no_grad():
            job.model[4].weight[1, 0, 0] += 1e-4


def late(job, step):
    """One model's schedule goes on a step too late."""
    if step == 6:
        job.optimizers[0].param_groups[0]["lr"][0] *= 2.0


@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_an_array_that_is_right_passes(small, precision):
    record = checked(small, precision=precision)
    assert record["passed"], record
    worst = record["worst_step"]
    assert 0 < worst["error"] <= worst["allowed"]


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        ({"before": rate}, r"update of .* of model 1 .* in step (7|8)"),
        ({"before": beta}, r"of model 2 .* in step (6|7|8)"),
        ({"after": variance}, r"update of 1.running_var of model 2 .* in step 7"),
        ({"after": moment}, r"exp_avg_sq of parameter \d of model 0 .* in step 6"),
        ({"after": one_weight}, r"update of 4.weight of model 1 .* in step 7"),
        ({"before": late}, r"of model 0 .* in step (6|7|8)"),
    ],
)
def test_a_small_error_of_one_model_late_in_training_fails(small, harm, words):
    import re

    record = checked(small, **harm)
    assert not record["passed"], record
    assert re.search(words, record["message"]), record["message"]


def test_nothing_that_is_not_a_number_passes(small):
    def poison(job, step):
        if step == 6:
            with torch.no_grad():
                job.model[4].bias[1] = torch.nan

    record = checked(small, after=poison)
    assert not record["passed"]
    assert "model 1" in record["message"]
