# SPDX-License-Identifier: MIT
"""Phases of a loop that does not know of them, seen by hooks that leave nothing behind."""

import sys
import threading

import pytest
import torch

from dnnsuite.errors import Unavailable
from dnnsuite.profiler.phases import PHASE_COLUMNS, PhasesInstrument


@pytest.fixture
def instrument():
    made = PhasesInstrument()
    made.open()
    made.start()
    yield made
    made.close()


def phases(instrument):
    table = instrument.tables()["phases"]
    assert set(table.columns) == set(PHASE_COLUMNS)
    return list(table["phase"])


def train(steps=2, num_workers=0):
    data = torch.utils.data.TensorDataset(torch.randn(2 * steps, 3))
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (x,) in torch.utils.data.DataLoader(data, batch_size=2, num_workers=num_workers):
        model(x).sum().backward()
        optimizer.step()


def test_a_plain_loop(instrument):
    train()
    assert phases(instrument) == ["data", "forward", "backward", "optimizer"] * 2 + ["data"]
    assert instrument.loader_workers == 0
    table = instrument.tables()["phases"]
    assert (table["t1_ns"] > table["t0_ns"]).all()
    assert (table["t0_ns"].to_numpy()[1:] >= table["t1_ns"].to_numpy()[:-1]).all()
    assert set(table["thread"]) == {threading.get_native_id()}


def test_nothing_is_left_behind():
    from torch.nn.modules import module
    from torch.utils.data import dataloader

    before = (torch.autograd.backward, torch.autograd.grad, dataloader._BaseDataLoaderIter.__next__)
    hooks = len(module._global_forward_hooks) + len(module._global_forward_pre_hooks)
    made = PhasesInstrument()
    made.start()
    assert torch.autograd.backward is not before[0]
    made.stop()
    made.start()
    made.close()
    made.close()
    assert before == (torch.autograd.backward, torch.autograd.grad, dataloader._BaseDataLoaderIter.__next__)
    assert hooks == len(module._global_forward_hooks) + len(module._global_forward_pre_hooks)
    train(1)
    assert phases(made) == []


def test_only_the_outermost_phase_counts(instrument):
    weight = torch.ones(2, requires_grad=True)

    class Penalty(torch.nn.Module):
        def forward(self, x):
            (gradient,) = torch.autograd.grad((weight * x).sum(), weight, create_graph=True)
            return gradient.sum() * weight.sum()

    Penalty()(torch.ones(2)).backward()
    assert phases(instrument) == ["forward", "backward"]


def test_a_forward_that_raises_has_an_end(instrument):
    class Broken(torch.nn.Module):
        def forward(self, x):
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        Broken()(1)
    torch.nn.ReLU()(torch.ones(1))
    assert phases(instrument) == ["forward", "forward"]


def test_threads_have_phases_of_their_own(instrument):
    thread = threading.Thread(target=train, args=(1,))
    with instrument.phase("mine"):
        thread.start()
        thread.join()
    table = instrument.tables()["phases"]
    assert sorted(table["phase"]) == ["backward", "data", "data", "forward", "mine", "optimizer"]
    assert table["thread"].nunique() == 2


def test_a_window_may_open_inside_of_a_phase():
    made = PhasesInstrument()

    class Opens(torch.nn.Module):
        def forward(self, x):
            made.start()
            return x

    Opens()(torch.ones(1))
    torch.nn.ReLU()(torch.ones(1))
    made.close()
    assert phases(made) == ["forward"]


def test_without_torch_there_is_nothing_to_see(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")
    with pytest.raises(Unavailable, match="has not imported torch"):
        PhasesInstrument().open()
