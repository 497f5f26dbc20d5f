# SPDX-License-Identifier: MIT
import pytest
import torch

import dnnsuite
from dnnsuite import optim
from dnnsuite._step.capture import NotPlain
from dnnsuite._step.carried_python import CarriedPython
from dnnsuite._step.part import StepPart
from dnnsuite._step.shard import Shard
from helpers import make_models

B = 4


class Counted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.seen, self.rate = torch.nn.Linear(3, 2), 0, 1.0

    def forward(self, x):
        self.seen += 1
        return self.layer(x) * self.rate


@pytest.fixture
def array():
    return dnnsuite.fuse(make_models(Counted, B))


def shards_of(array, width):
    optimizer = optim.SGD(array.parameters(), lr=0.1)
    part = StepPart(lambda models, x: models(x).square().mean((1, 2)), optimizer, None, 1)
    return [Shard(array, [part], start, width) for start in range(0, B, width)]


def values(array, name):
    return [getattr(model, name) for model in dnnsuite.unfuse(array)]


def test_values_go_from_the_array_to_its_shards(array):
    shards = shards_of(array, 2)
    python = CarriedPython(array, shards)
    assert not python.changed()
    array.rate = 2.0
    assert python.changed()
    names, _ = python.carry_over()
    assert [name.rpartition(".")[2] for name in names] == ["rate"]
    assert not python.changed()
    x = torch.ones(2, 5, 3)
    for shard in shards:
        before = [layer(x[0]) for layer in (m.layer for m in dnnsuite.unfuse(shard.array))]
        torch.testing.assert_close(shard.array(x), 2 * torch.stack(before))


def test_values_that_a_forward_changes_come_back(array):
    shards = shards_of(array, 2)
    python = CarriedPython(array, shards)
    for shard in shards:
        shard.array(torch.ones(2, 5, 3))
    python.settle(ran=True)
    assert values(array, "seen") == [1] * B
    assert not python.differing


def test_other_shards_are_carried_to_after_a_deal(array):
    python = CarriedPython(array, shards_of(array, 2))
    shards = shards_of(array, 4)
    python.deal(shards)
    shards[0].array(torch.ones(4, 5, 3))
    python.carry_back()
    assert values(array, "seen") == [1] * B


def test_nothing_is_carried_over_to_models_that_differ(array):
    python = CarriedPython(array, shards_of(array, 4))
    python.differing = "counter"
    with pytest.raises(NotPlain):
        python.carry_over()
