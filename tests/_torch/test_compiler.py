# SPDX-License-Identifier: MIT
"""Optimizers of arrays do without torch's compiler, whose import takes as long as torch's own."""

import subprocess
import sys

import pytest
import torch

import dnnsuite
from dnnsuite._torch import uncompiled_class

TRAINS = """
import sys, torch, dnnsuite
array = dnnsuite.fuse([torch.nn.Linear(2, 2) for _ in range(2)])
optimizer = dnnsuite.optim.Adam(array.parameters())
with dnnsuite.StepRunner(array, optimizer, lambda array, x: array(x).square().mean((1, 2))) as runner:
    runner.step(torch.randn(2, 4, 2))
optimizer.zero_grad()
optimizer.load_state_dict(optimizer.state_dict())
print("torch._dynamo" in sys.modules)
"""


def test_an_array_trains_without_torchs_compiler():
    done = subprocess.run([sys.executable, "-c", TRAINS], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_method_that_somebody_has_patched_is_called_as_it_is(monkeypatch):
    array = dnnsuite.fuse([torch.nn.Linear(2, 2) for _ in range(2)])
    optimizer = dnnsuite.optim.SGD(array.parameters(), lr=0.1)
    array(torch.ones(2, 3, 2)).sum().backward()
    torchs, calls = torch.optim.Optimizer.zero_grad, []

    def noted(self, *arguments, **options):
        calls.append(self)
        return torchs(self, *arguments, **options)

    monkeypatch.setattr(torch.optim.Optimizer, "zero_grad", noted)
    optimizer.zero_grad()
    assert calls == [optimizer]
    assert all(parameter.grad is None for parameter in array.parameters())


ALONE = """
import sys
from dnnsuite import jobs
job = jobs.get("toy_reg")(jobs.JobConfig(batch_size=4))
job.setup()
job.step()
print("torch._dynamo" in sys.modules)
"""


def test_a_model_alone_trains_without_torchs_compiler():
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adadelta", "Adagrad", "RMSprop"])
def test_a_class_without_the_compiler_takes_torchs_steps(name):
    torchs = getattr(torch.optim, name)
    models = [torch.nn.Linear(3, 3) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [
        kind(model.parameters(), lr=0.1) for kind, model in zip((torchs, uncompiled_class(torchs)), models, strict=True)
    ]
    assert isinstance(optimizers[1], torchs)
    schedules = [torch.optim.lr_scheduler.StepLR(each, 1) for each in optimizers]
    x = torch.randn(5, 3)
    for _ in range(3):
        for model, optimizer, schedule in zip(models, optimizers, schedules, strict=True):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            schedule.step()
    assert torch.equal(models[0].weight, models[1].weight)
    assert optimizers[0].state_dict()["param_groups"] == optimizers[1].state_dict()["param_groups"]
