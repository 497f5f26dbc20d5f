# SPDX-License-Identifier: MIT
import gc
import weakref

import torch

from dnnsuite._step.capture.placed import PlacedScript, Places
from dnnsuite._step.capture.plan import make_plan
from dnnsuite._step.capture.record import StepRecorder
from dnnsuite._step.capture.script import Script


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
