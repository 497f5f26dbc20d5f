# SPDX-License-Identifier: MIT
"""Processes that train together: what they learn is what one would of all their images, and none is left behind."""

import os
import signal

import pytest
import torch

from children import children
from dnnsuite import jobs
from dnnsuite.errors import Error
from dnnsuite.jobs import _replica
from dnnsuite.jobs._replica import Team

SMALL = {"network": "resnet18", "image_size": 32}


def config(**options):
    return jobs.JobConfig(batch_size=2, threads=1, options={**SMALL, **options})


@pytest.fixture
def team():
    made = Team(2, config())
    yield made
    made.close()
    assert not children()


def alone(ranks, steps):
    """The losses of the processes, and what of the first parameter is left, from one process with their images."""
    images = []
    for rank in ranks:
        random = torch.Generator().manual_seed(rank)
        images.append(torch.randn(2, 3, 32, 32, generator=random))
    torch.manual_seed(0)
    model = _replica.network("resnet18")
    optimizer = torch.optim.SGD(model.parameters(), 0.01, 0.9)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        # Statistics of batch normalisation are of each process alone.
        each = [torch.nn.functional.cross_entropy(model(x), torch.zeros(2, dtype=torch.int64)) for x in images]
        (sum(each) / len(each)).backward()
        optimizer.step()
        losses.append([float(loss.detach()) for loss in each])
    return [list(column) for column in zip(*losses, strict=True)]


def test_worlds_of_one_and_of_two_learn_what_one_process_would(team):
    torch.set_num_threads(1)  # as the processes: statistics over two pixels make much of another rounding
    for world_size in (1, 2):
        assert team.begin(world_size) == 11_689_512
        for _ in range(2):
            team.step(world_size)
        expected = alone(range(world_size), 2)
        found = team.wait(world_size)
        assert len(found) == world_size
        for ours, theirs in zip(found, expected, strict=True):
            assert ours == pytest.approx(theirs, rel=1e-3)
        assert team.wait(world_size) == [[]] * world_size


def test_one_that_dies_is_named_and_ends_the_others(team):
    team.begin(2)
    os.kill(team._processes[1].pid, signal.SIGKILL)
    team._processes[1].wait()
    with pytest.raises(Error, match="process 1 of the 2 that train together: it"):
        team.wait(2)
    assert not children()


def test_one_that_fails_says_why():
    team = Team(1, config(network="resnet1"))
    with pytest.raises(Error, match=r"process 0 of the 1 .*'resnet1' is no model"):
        team.begin(1)
    assert not children()
