# SPDX-License-Identifier: MIT
import copy

import pytest
import torch

from dnnsuite import jobs
from dnnsuite.errors import Error, InvalidArgument
from dnnsuite.jobs import distributed
from job_runs import make
from two_processes import forget_place, run_in_two

# Smaller images leave two values for the last statistics: their gradients are rounding, and explode.
CONVNET = {"data": "synthetic", "arch": "resnet18", "image_size": 64, "lr": 0.02}
DCGAN = {"data": "synthetic", "ngf": 2, "ndf": 2}

WORKER = f"""
    import os, sys
    import torch
    from job_runs import losses, make

    found = {{}}
    for name, settings in (("convnet_distributed", {CONVNET}), ("dcgan_all", {DCGAN})):
        job = make(name, batch_size=2, **settings)
        batches = [job.batch(i) for i in range(2)]
        for _ in batches:
            job.step()
        found[name] = {{
            "batches": batches, "parameters": list(job.model.parameters()), "items": job.items_per_step,
        }}
    job.close()
    job.close()
    assert not torch.distributed.is_initialized()
    torch.save(found, f"{{sys.argv[1]}}/{{os.environ['RANK']}}.pt")
"""


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    forget_place(monkeypatch)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Results of two processes."""
    folder = tmp_path_factory.mktemp("ranks")
    run_in_two(WORKER, folder)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(2)]


@pytest.mark.parametrize("name", ["convnet_distributed", "dcgan_all"])
def test_two_processes_have_one_model_and_other_data(two, name):
    first, second = (rank[name] for rank in two)
    assert first["items"] == second["items"] == 4
    for ours, theirs in zip(first["parameters"], second["parameters"], strict=True):
        assert torch.equal(ours, theirs)
    assert not torch.equal(*(rank["batches"][0][0] for rank in (first, second)))


def test_gradients_are_the_average_of_those_of_the_processes(two):
    torch.set_num_threads(1)  # as the processes
    job = make("convnet", **CONVNET)
    model, started = job.model, copy.deepcopy(list(job.model.parameters()))
    for batches in zip(*(rank["convnet_distributed"]["batches"] for rank in two), strict=True):
        copies = [copy.deepcopy(model) for _ in batches]
        for replica, (x, classes) in zip(copies, batches, strict=True):
            torch.nn.functional.cross_entropy(replica(x), classes).backward()
        with torch.no_grad():
            for p, *replicas in zip(model.parameters(), *(c.parameters() for c in copies), strict=True):
                p -= 0.02 * sum(replica.grad for replica in replicas) / 2
    start, end, theirs = (
        torch.cat([p.detach().flatten() for p in parameters])
        for parameters in (started, model.parameters(), two[0]["convnet_distributed"]["parameters"])
    )
    assert (end - theirs).norm() < 0.001 * (end - start).norm()


def test_alone_nothing_is_joined_and_nothing_wrapped(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "1")
    place = distributed.place_of("all")
    assert place == (0, 1, 0)
    model, device = torch.nn.Linear(1, 1), torch.device("cpu")
    distributed.join(place, device)
    assert not torch.distributed.is_initialized()
    assert distributed.parallel(model, place, device) is model
    distributed.finish()


def test_the_place_is_that_of_the_environment(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "3")
    assert distributed.place_of("all") == (3, 4, 3)
    assert distributed.place_of("student") == (0, 1, 0)
    monkeypatch.setenv("LOCAL_RANK", "1")
    place = distributed.place_of("all")
    assert place.local_rank == 1
    assert distributed.device_of(place, torch.device("cuda")) == torch.device("cuda:1")
    assert distributed.device_of(place, torch.device("cuda:0")) == torch.device("cuda:0")
    assert distributed.device_of(place, torch.device("cpu")) == torch.device("cpu")
    job = jobs.get("convnet_distributed")(jobs.JobConfig(batch_size=8))
    assert job.items_per_step == 32


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE is set, but RANK is not"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE='two' is not a number"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE=0: it must be at least 1"),
        ({"WORLD_SIZE": "2", "RANK": "2"}, "RANK=2 is not one of WORLD_SIZE=2"),
    ],
)
def test_a_place_that_is_none_is_refused(monkeypatch, variables, message):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InvalidArgument, match=message):
        distributed.place_of("all")


def test_where_nobody_is_to_be_met(monkeypatch):
    place, device = distributed.Place(1, 2, 1), torch.device("cpu")
    with pytest.raises(InvalidArgument, match="MASTER_ADDR is not"):
        distributed.join(place, device)
    monkeypatch.setenv("MASTER_ADDR", "nowhere.invalid")
    monkeypatch.setenv("MASTER_PORT", "-1")
    with pytest.raises(Error, match=r"process 1 of 2 met no others at nowhere\.invalid:-1"):
        distributed.join(place, device)
