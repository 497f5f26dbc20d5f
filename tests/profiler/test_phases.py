# SPDX-License-Identifier: MIT
"""Phases of a loop that does not know of them, seen by hooks that leave nothing behind."""

import sys
import threading
import warnings

import pytest
import torch

from dnnsuite import profiler, timing
from dnnsuite.errors import Unavailable
from dnnsuite.profiler.phases import PHASE_COLUMNS, PhasesInstrument
from profiler_loops import loop


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


def test_a_closure_has_phases_of_its_own(instrument):
    """What an optimizer's step does before, between and after its closures is the optimizer's; the rest is not."""
    model = torch.nn.Linear(3, 1)
    x = torch.randn(4, 3)

    def closure():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    assert float(optimizer.step(closure).detach()) > 0
    once = ["optimizer", "forward", "backward", "optimizer"]
    assert phases(instrument) == once
    optimizer.step(closure=closure)
    assert phases(instrument) == once * 2
    table = instrument.tables()["phases"]
    assert (table["t0_ns"].to_numpy()[1:] >= table["t1_ns"].to_numpy()[:-1]).all()
    # between forward and backward is the loss: nobody's phase, and surely not the optimizer's
    assert table["t0_ns"][2] > table["t1_ns"][1]


def test_an_optimizer_within_another_and_one_within_backward(instrument):
    model = torch.nn.Linear(3, 1)
    inner = torch.optim.SGD(model.parameters(), 0.1)

    class Twice(torch.optim.Optimizer):
        """As sharpness-aware minimisation does: two gradients for a step."""

        def __init__(self, parameters):
            super().__init__(parameters, {})

        def step(self, closure):
            closure()
            with torch.enable_grad():
                closure()
            inner.step()

    def closure():
        inner.zero_grad()
        model(torch.randn(4, 3)).square().mean().backward()

    Twice(model.parameters()).step(closure)
    assert phases(instrument) == ["optimizer", "forward", "backward"] * 2 + ["optimizer"]
    assert instrument.optimizer.name == "torch.optim.SGD"  # the one that updates
    before = len(phases(instrument))
    model.bias.register_post_accumulate_grad_hook(lambda _: inner.step())
    model(torch.randn(4, 3)).sum().backward()
    assert phases(instrument)[before:] == ["forward", "backward", "optimizer", "backward"]


def test_a_compiled_module_does_not_warn_of_hooks_that_the_program_does_not_have(instrument):
    with warnings.catch_warnings():  # as `-W error` does
        warnings.simplefilter("error")
        made = PhasesInstrument()
        made.start()
        torch.compile(torch.nn.Linear(2, 2), backend="eager")(torch.ones(1, 2))
        made.stop()
        assert [each[0] for each in warnings.filters[:1]] == ["error"]


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


def test_spans_of_observed_steps_are_a_table():
    spans = timing.Spans(capacity=100)
    mine = spans.span("mine")

    class Stepping:
        def step(self):
            with mine:
                pass
            p.step()

    with profiler.profile(
        schedule=profiler.schedule(wait=2, active=3), instruments=[profiler.SpansInstrument(spans)]
    ) as p:
        loop(Stepping(), 5, 0)
    assert list(p.spans["name"]) == ["mine"] * 3
    assert set(profiler.definitions(p.spans)) == set(p.spans.columns)
    assert len(spans) == 5


def test_spans_that_were_dropped_are_a_note():
    spans = timing.Spans(capacity=1)
    with profiler.profile(instruments=[profiler.SpansInstrument(spans)]) as p:
        for _ in range(3):
            with spans.span("mine"):
                pass
    assert any("2 spans were dropped" in note for note in p.notes)
