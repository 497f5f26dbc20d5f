# SPDX-License-Identifier: MIT
import contextlib

import torch

import dnnsuite
from dnnsuite import optim
from dnnsuite._step.capture import Scripts
from dnnsuite._step.deal import Deal, autocast_now, parts_of
from dnnsuite._step.part import StepPart
from dnnsuite._step.shard import Shard
from helpers import make_models


def test_parts():
    assert parts_of(5, 2) == [(0, 2), (2, 2), (4, 1)]
    assert parts_of(2, 8) == [(0, 2)]
    assert parts_of(8, 1, rest=4) == [(0, 1), (1, 4), (5, 3)]


def test_autocast_is_that_of_the_calling_thread():
    assert not autocast_now()[1]
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        assert autocast_now() == ("cpu", True, torch.bfloat16, False)


def test_the_mode_is_that_of_the_shard_furthest_from_a_replay():
    array = dnnsuite.fuse(make_models(lambda: torch.nn.Linear(3, 2), 2))
    optimizer = optim.SGD(array.parameters(), lr=0.1)

    def loss(part, x):
        return part(x).square().mean((1, 2))

    shards = [Shard(array, [StepPart(loss, optimizer)], start, length) for start, length in parts_of(2, 1)]
    deal = Deal(shards, loss, Scripts(), contextlib.nullcontext, autocast_now())
    vectors = [{name: group[name] for name in optimizer.per_model} for group in optimizer.param_groups]
    batch = (torch.randn(2, 4, 3),)
    for _ in range(5):
        assert deal.run(0, batch, (vectors, None, None)).shape == (1,)
        assert deal.mode == "warming up"
    for _ in range(5):
        deal.run(1, batch, (vectors, None, None))
    assert deal.mode == "captured"
