# SPDX-License-Identifier: MIT
"""Schedules of an array are torch's to libraries that look for those: accelerate and Lightning ask isinstance."""

import pytest
import torch

import dnnsuite
from dnnsuite import optim
from dnnsuite.optim import lr_scheduler
from helpers import make_models

LR = [0.1, 0.01]


def make():
    return torch.nn.Linear(4, 2)


def test_all_are_torchs_schedules():
    kinds = [getattr(lr_scheduler, name) for name in lr_scheduler.__all__]
    assert all(issubclass(kind, torch.optim.lr_scheduler.LRScheduler) for kind in kinds if isinstance(kind, type))
    assert issubclass(lr_scheduler.ReduceLROnPlateau, torch.optim.lr_scheduler.ReduceLROnPlateau)
    assert not issubclass(lr_scheduler.StepLR, torch.optim.lr_scheduler.ReduceLROnPlateau)


def test_an_accumulation_of_accelerate_steps_them_as_torchs():
    accelerate = pytest.importorskip("accelerate")
    rates, counts = [], []
    models = make_models(make, 2)
    for room, given in ((lr_scheduler, None), (torch.optim.lr_scheduler, 0), (torch.optim.lr_scheduler, 1)):
        module = dnnsuite.fuse(models) if given is None else models[given]
        kind = optim.AdamW if given is None else torch.optim.AdamW
        optimizer = kind(module.parameters(), lr=LR if given is None else LR[given])
        accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
        module, optimizer, schedule = accelerator.prepare(module, optimizer, room.LinearLR(optimizer, total_iters=8))
        for _ in range(6):
            with accelerator.accumulate(module):
                x = torch.randn(2, 3, 4) if given is None else torch.randn(3, 4)
                accelerator.backward(module(x).sum())
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
        counts.append(schedule.scheduler._step_count)
        rates.append(schedule.get_last_lr()[0])
        accelerate.state.AcceleratorState._reset_state(True)
        accelerate.state.GradientState._reset_state()
    torch.testing.assert_close(rates[0].tolist(), rates[1:])
    assert counts[0] == counts[1] == counts[2]
