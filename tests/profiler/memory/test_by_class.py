# SPDX-License-Identifier: MIT
"""Memory of a loop that does not know of it, against counts by hand."""

import sys

import pytest
import torch
from torch import nn

from dnnsuite import fuse, optim, profiler
from dnnsuite.errors import Unavailable
from dnnsuite.nn import functional
from dnnsuite.profiler.memory import CLASSES, MemoryInstrument


def observe(step, **arguments):
    with profiler.profile(instruments=[MemoryInstrument(**arguments)]) as p:
        for _ in range(3):
            step()
            p.step()
    return p


def by_class(p):
    return dict(zip(p.memory["class"], p.memory["bytes"], strict=True))


def test_a_plain_loop_by_hand():
    model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 5), nn.BatchNorm1d(5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step():
        optimizer.zero_grad()
        model(torch.randn(4, 10)).sum().backward()
        optimizer.step()

    p = observe(step)
    parameters = 10 * 20 + 20 + 20 * 5 + 5 + 5 + 5
    buffers = 2 * 5 * 4 + 8  # running mean and variance, and an int64 counter
    found = by_class(p)
    assert found["weights"] == 4 * parameters + buffers
    assert found["gradients"] == found["optimizer state"] == 4 * parameters
    # inputs of the linear layers and of the normalisation, and its mean and 1/std
    assert found["feature maps"] == 4 * (4 * 10 + 4 * 20 + 4 * 5 + 2 * 5)
    assert found["workspace and other"] > 0
    assert list(p.memory["definition"]) == list(CLASSES.values())
    assert len(p.memory_steps) == 3
    assert p.memory_steps["feature_maps_bytes"].nunique() == 1
    assert p._driver.instruments[0]._modules == {}


def test_an_array_of_models():
    models = [nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 5)) for _ in range(3)]
    array = fuse(models)
    optimizer = optim.SGD(array.parameters(), lr=[0.1, 0.2, 0.3])
    x, y = torch.randn(3, 4, 10), torch.randint(5, (3, 4))

    def step():
        optimizer.zero_grad()
        functional.cross_entropy(array(x), y).sum().backward()
        optimizer.step()

    p = observe(step, models=3)
    table = p.memory.set_index("class")
    own = sum(buffer.nbytes for buffer in array.buffers()) / 3  # an array keeps a few numbers of each model
    assert table.loc["weights", "bytes_per_model"] == 4 * (10 * 20 + 20 + 20 * 5 + 5) + own
    # x, and at least the hidden layer that both ReLU and the second layer need
    assert table.loc["feature maps", "bytes_per_model"] >= 4 * (4 * 10 + 4 * 20)


def test_what_cannot_be_seen_is_a_note_not_a_zero():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        model(torch.randn(2, 3)).sum().backward()
        optimizer.step()

    assert any("3 steps saved nothing that could be seen" in note for note in observe(step, modules=False).notes)
    assert not any("saved nothing" in note for note in observe(step).notes)


def test_the_advice_sees_feature_maps():
    model = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(4)))

    p = observe(lambda: model(torch.randn(4096, 8)).sum().backward())
    from dnnsuite.profiler._advice import facts

    assert facts(p.data).memory_shares["feature maps"] > 90


def test_without_torch_there_is_nothing_to_see(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")
    with pytest.raises(Unavailable):
        MemoryInstrument().open()


def test_gradients_of_steps_that_warm_up_do_not_add_up():
    model = nn.Linear(10, 20)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = profiler.schedule(warmup=3, active=1, repeat=1)
    with profiler.profile(schedule=schedule, instruments=[MemoryInstrument()]) as p:
        for _ in range(5):
            model(torch.randn(4, 10)).sum().backward()
            optimizer.step()
            p.step()
    assert by_class(p)["gradients"] == 4 * (10 * 20 + 20)
