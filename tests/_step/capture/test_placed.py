# SPDX-License-Identifier: MIT
import gc
import weakref

import pytest
import torch

import dnnsuite
from dnnsuite._step.capture.library import PlacedScript, Places
from dnnsuite._step.capture.plan import make_plan
from dnnsuite._step.capture.record import StepRecorder
from dnnsuite._step.capture.script import Script
from helpers import assert_near, make_models


def step_on(weight, extra):
    def step(x):
        weight[1].mul_(x)
        return weight.sum(1) + extra

    return step


def script_of(weight, extra):
    x = torch.full((2,), 2.0)
    with StepRecorder([x]) as recorder:
        losses = step_on(weight, extra)(x)
    recorder.recording.losses = recorder.slot(losses).index
    return Script(make_plan(recorder.recording))


def test_a_script_runs_on_the_tensors_of_other_roles_and_holds_none_of_its_own():
    weight, extra = torch.arange(6.0).reshape(3, 2), torch.tensor([1.0, 2.0, 3.0])
    placed = PlacedScript.of(script_of(weight, extra), Places({"w": weight}))
    assert [place.role for place in placed.places.values()] == ["w"] * len(placed.places)
    assert [other.data_ptr() for other in placed.others.values()] == [extra.data_ptr()]
    watched = weakref.ref(weight)
    del weight
    gc.collect()
    assert watched() is None
    mine, theirs = torch.arange(10.0, 16.0).reshape(3, 2), torch.arange(10.0, 16.0).reshape(3, 2)
    x = torch.tensor([0.5, 3.0])
    assert torch.equal(placed.on({"w": mine})([x]), step_on(theirs, extra)(x))
    assert torch.equal(mine, theirs)


class Started(torch.nn.Module):
    """Set its shift from the first batch, as ActNorm does; a flag in a buffer says that it has."""

    def __init__(self):
        super().__init__()
        self.layer, self.shift = torch.nn.Linear(3, 3), torch.nn.Parameter(torch.zeros(3))
        self.register_buffer("started", torch.tensor(0))

    def forward(self, x):
        if self.started.item() == 0:
            with torch.no_grad():
                self.shift.copy_(x.mean(0))
            self.started.fill_(1)
        return self.layer(x - self.shift).square().mean()


def load(target, index):
    held = {name: value.clone() for name, value in target.state_dict().items()}
    held["started"][index].zero_()
    target.load_state_dict(held)


def write(target, index):
    target.started[index].zero_()


def write_state(target, index):
    target.state_dict()["started"][index].zero_()


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("change", [load, write, write_state])
def test_a_buffer_that_python_reads_is_looked_at_in_each_step(change, width):
    models, x = make_models(Started, 3, torch.float64), torch.randn(10, 3, 5, 3, dtype=torch.float64)
    array = dnnsuite.fuse(make_models(Started, 3, torch.float64))
    mine = dnnsuite.optim.SGD(array.parameters(), lr=0.1)
    theirs = [torch.optim.SGD(model.parameters(), 0.1) for model in models]
    with dnnsuite.StepRunner(array, mine, lambda a, x: a(x), threads=1, width=width) as runner:
        for step in range(10):
            if step == 5:
                change(array, 1)
                change(models[1], ())
            losses = runner.step(x[step]).losses()
            for index, (model, optimizer) in enumerate(zip(models, theirs, strict=True)):
                optimizer.zero_grad()
                loss = model(x[step, index])
                loss.backward()
                optimizer.step()
                assert_near(losses[index], loss.detach(), f"step {step}, model {index}")
