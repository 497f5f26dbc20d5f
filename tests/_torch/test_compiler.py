# SPDX-License-Identifier: MIT
"""Optimizers of arrays do without torch's compiler, whose import takes as long as torch's own."""

import subprocess
import sys

import torch

import dnnsuite

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
