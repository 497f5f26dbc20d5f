# SPDX-License-Identifier: MIT
"""A declared workload as what a sweep takes."""

import dataclasses

import pytest
import torch

from dnnsuite import jobs, sweep
from dnnsuite._runs.identity import identity_of
from dnnsuite.data.batches import ArrayBatches
from dnnsuite.errors import InvalidArgument
from dnnsuite.tuning.job import HFHT, JobSweep, read_space, space_of

OPTIONS = {"points": 16, "width": 16}


@pytest.fixture(scope="module")
def pointnet():
    return JobSweep("pointnet_cls", "quick", "cpu", OPTIONS, "synthetic", iters_per_epoch=3)


def test_epochs_go_on(pointnet):
    epochs = pointnet.train({"batch_size": 4})
    epochs.set_epoch(0)
    first = list(epochs)
    epochs.set_epoch(1)
    second = list(epochs)
    assert len(first) == len(second) == 3
    assert first[0][0].shape == (4, 3, 16)
    assert not torch.equal(first[0][0], second[0][0])
    assert len(list(pointnet.held_out(2))) == 2


def test_models_by_options_of_a_configuration(pointnet):
    plain, transformed = (pointnet.model({"feature_transform": value}) for value in (False, True))
    assert sum(p.numel() for p in transformed.parameters()) > sum(p.numel() for p in plain.parameters())
    batch = next(iter(pointnet.train({})))
    found = pointnet.measure(plain.eval(), *batch)
    assert set(found) == {"loss", "acc"}
    assert 0 <= float(found["acc"]) <= 1


def test_versions_of_mobilenet():
    job = JobSweep("mobilenet_v3_small", "quick", "cpu", {"width_mult": 0.25}, "synthetic")
    sizes = {
        version: sum(p.numel() for p in job.model({"version": version}).parameters())
        for version in ("v2", "v3s", "v3l")
    }
    assert len(set(sizes.values())) == 3
    with pytest.raises(InvalidArgument, match="version 'v4'"):
        job.model({"version": "v4"})


def test_the_spaces_that_ship(tmp_path):
    job = JobSweep("mobilenet_v3_small", "quick", "cpu", {})
    assert set(space_of(job.workload, "paper", 0)) == set(HFHT["mobilenet"])
    assert space_of(job.workload, "paper", 0)["batch_size"].values == (1024, 2048)
    bert = JobSweep("bert", "quick", "cpu", {})
    assert set(space_of(bert.workload, "quick", 0)[0]) == set(bert.workload.hyper)
    (tmp_path / "space.yaml").write_text("lr: {loguniform: [1e-4, 1e-2]}\nbatch_size: [8, 16]\n")
    assert set(read_space(tmp_path / "space.yaml")) == {"lr", "batch_size"}
    (tmp_path / "list.yaml").write_text("- {lr: 1e-3, name: 1e-3x}\n- {lr: 2E+1}\n- {lr: 0.1}\n")
    assert read_space(tmp_path / "list.yaml") == [{"lr": 0.001, "name": "1e-3x"}, {"lr": 20.0}, {"lr": 0.1}]
    (tmp_path / "empty.json").write_text("{}")
    with pytest.raises(InvalidArgument, match="is empty"):
        read_space(tmp_path / "empty.json")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [("dcgan", {}, "trains discriminator and generator in turn"), ("bert", {"nlayer": 2}, "did you mean 'nlayers'"),
     ("brt", {}, "did you mean 'bert'")],
)  # fmt: skip
def test_jobs_that_cannot_be_tuned(name, options, message):
    with pytest.raises(InvalidArgument, match=message):
        JobSweep(name, "quick", "cpu", options)


def shrink(model):
    for parameter in model.parameters():
        parameter.mul_(0.99)


SGD = jobs.Made("SGD", {"lr": "lr"})
GROUPS = [
    jobs.Group(lambda name, parameter: name == "bias", jobs.Made("SGD", {"lr": 0.1})),
    jobs.Group(lambda name, parameter: True, SGD),
]  # fmt: skip


@pytest.mark.parametrize("optimizer", [SGD, GROUPS])
def test_a_trial_is_trained_as_the_job_is(optimizer):
    """With the schedule by steps, gradients clipped at the job's norm, split batches, several groups of parameters and
    a change after each step; the measure is on other tensors."""
    x = torch.randn(64, 3, generator=torch.Generator().manual_seed(1))
    loss = lambda model, x, y: (model(x) - y).square().mean()  # noqa: E731
    name = f"tuned_by_steps{len(optimizer)}"
    kind = jobs.declare(jobs.Workload(
        name=name, description="a sum", unit="rows", model=lambda options, hyper: torch.nn.Linear(3, 1),
        data=lambda config, options: ArrayBatches(x, x.sum(1, keepdim=True), batch_size=config.batch_size), loss=loss,
        held_out=lambda config, options: ArrayBatches(x, batch_size=64),
        metric=jobs.Metric("error", lambda model, x: (model(x)[:, 0] - x.sum(1)).square().mean(), "less", batches=1),
        optimizer=optimizer, hyper={"lr": 0.3}, rate=jobs.Rate(0.4, 0.6), clip_norm=0.5,
        accumulate=2, after_step=shrink,
        presets={"default": jobs.Preset(2, 3, batch_size=8)},
    ))  # fmt: skip
    job = kind(jobs.JobConfig(batch_size=8, steps=6))
    job.setup()
    for _ in range(6):
        job.step()
    found = JobSweep(name, "default", "cpu", {})
    swept = sweep(
        space=[{"lr": 0.3}, {"lr": 1e-4}], metric=found.metric, goal=found.goal, epochs=2, out=False, quiet=True,
        **found.arguments(2),
    )  # fmt: skip
    assert swept.trials[0].history[-1]["error"] == pytest.approx(job.metrics()["error"], rel=1e-4)


def test_all_searches_of_a_job_load_its_data_once():
    loads = []
    found = JobSweep("pointnet_cls", "quick", "cpu", OPTIONS, "synthetic", iters_per_epoch=3)
    plain = found.workload

    def counted(make):
        return lambda *given: (loads.append(1), make(*given))[1]

    found.workload = dataclasses.replace(plain, data=counted(plain.data), held_out=counted(plain.held_out))
    passes = []
    for _ in range(2):
        given = found.arguments(2)
        batches = [*given["train"]({}), *given["evaluate"]]
        passes.append([part.sum().item() for batch in batches for part in batch])
    assert len(loads) == 2
    assert passes[0] == passes[1]


@pytest.mark.parametrize("name", ["pointnet_cls", "mobilenet_v3_small"])
def test_what_a_search_has_loaded_makes_no_other_search(name):
    """A search by the second of two ways could not be resumed: the first one had left its batches in the job."""

    def told(job):
        return identity_of(job.arguments(2)).texts

    job = JobSweep(name, "quick", "cpu", {}, "synthetic", iters_per_epoch=1)
    first = told(job)
    for size in (4, 8):
        list(job.train({"batch_size": size}))
    list(job.held_out())
    assert told(job) == first == told(JobSweep(name, "quick", "cpu", {}, "synthetic", iters_per_epoch=1))
    assert told(JobSweep(name, "quick", "cpu", {}, "synthetic", iters_per_epoch=1, seed=3)) != first
