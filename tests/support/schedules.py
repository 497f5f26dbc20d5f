# SPDX-License-Identifier: MIT
"""Schedules whose arguments differ between the models, and how to make and to compare them."""

import pytest
import torch

from array_parameters import array_parameters
from dnnsuite import optim

theirs = torch.optim.lr_scheduler
LR = [0.1, 1.0, 0.003]
B = 3

CASES = {
    "StepLR": {"step_size": [2, 1, 4], "gamma": [0.5, 0.9, 2.0]},
    "MultiStepLR": {"milestones": [[2, 5, 5], [1], [3, 4]], "gamma": [0.5, 0.9, 0.1]},
    "ConstantLR": {"factor": [0.5, 1.0, 0.1], "total_iters": [3, 5, 1]},
    "LinearLR": {"start_factor": [0.5, 0.1, 1.0], "end_factor": [1.0, 0.5, 0.0], "total_iters": [4, 2, 6]},
    "ExponentialLR": {"gamma": [0.9, 0.5, 1.1]},
    "PolynomialLR": {"total_iters": [4, 8, 2], "power": [1.0, 2.0, 0.5]},
    "CosineAnnealingLR": {"T_max": [3, 5, 20], "eta_min": [0.0, 0.1, 0.001]},
    "CosineAnnealingWarmRestarts": {"T_0": [2, 3, 1], "T_mult": [1, 2, 3], "eta_min": [0.0, 0.1, 0.001]},
    "LambdaLR": {"lr_lambda": (lambda e: 0.9**e, lambda e: 1 / (e + 1), lambda e: 2.0)},
    "MultiplicativeLR": {"lr_lambda": (lambda e: 0.9, lambda e: 1 / (e + 1), lambda e: 1.5)},
    "CyclicLR": {
        "base_lr": [0.1, 0.2, 0.0], "max_lr": [0.5, 1.0, 0.1], "step_size_up": [2, 4, 1],
        "step_size_down": [3, 1, 5], "base_momentum": [0.8, 0.5, 0.7],
    },
    "CyclicLR, triangular2": {"base_lr": 0.1, "max_lr": [0.5, 1.0, 0.3], "step_size_up": 2, "mode": "triangular2"},
    "CyclicLR, exp_range": {
        "base_lr": 0.1, "max_lr": 0.5, "step_size_up": 3, "mode": "exp_range", "gamma": [0.9, 0.5, 1.0],
    },
    "CyclicLR, own": {"base_lr": 0.1, "max_lr": 0.5, "step_size_up": 2, "scale_fn": lambda x: 1 / x},
    "OneCycleLR": {
        "max_lr": [0.5, 1.0, 0.1], "total_steps": [14, 20, 17], "pct_start": [0.3, 0.5, 0.25],
        "div_factor": [25.0, 10.0, 4.0], "max_momentum": [0.95, 0.9, 0.99],
    },
    "OneCycleLR, linear": {"max_lr": 0.5, "epochs": 5, "steps_per_epoch": [3, 4, 5], "anneal_strategy": "linear"},
    "OneCycleLR, three": {"max_lr": [0.5, 1.0, 0.1], "total_steps": 15, "three_phase": True},
}  # fmt: skip


def one_of(value, index):
    return value[index] if isinstance(value, (list, tuple)) else value


def make(module, kind, optimizer, arguments):
    return getattr(module, kind.split(",")[0])(optimizer, **arguments)


def fused(kind="Adam", lr=LR, n=B):
    params = array_parameters(torch.ones(n, 2))
    return optim.SGD(params, lr=lr, momentum=0.9) if kind == "SGD" else optim.Adam(params, lr=lr)


def alone(kind, index):
    params = [torch.nn.Parameter(torch.ones(2))]
    return (
        torch.optim.SGD(params, lr=LR[index], momentum=0.9) if kind == "SGD" else torch.optim.Adam(params, lr=LR[index])
    )


def compare(array, others):
    group = array.param_groups[0]
    rates = [o.param_groups[0]["lr"] for o in others]
    assert group["lr"].tolist() == pytest.approx(rates, rel=1e-12, abs=1e-18)
    for index, other in enumerate(others):
        its = other.param_groups[0]
        mine, momentum = (
            (group["momentum"], its["momentum"]) if "momentum" in its else (group["beta1"], its["betas"][0])
        )
        assert float(mine[index]) == pytest.approx(momentum, rel=1e-12)


def step_all(array, others, schedule, schedules):
    array.step()
    schedule.step()
    for other, one in zip(others, schedules, strict=True):
        other.step()
        one.step()
    compare(array, others)


def changed(optimizer, indices, lr):
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.data = torch.ones(len(indices), 2)
        fresh = {name: 0.5 if name.startswith("beta") else 0.0 for name in optimizer.per_model} | {"lr": lr}
    optimizer.select(indices, **(fresh if None in indices else {}))


def warm_up_then(module, optimizer, index=None, start=(3, 1, 5)):
    pick = (lambda v: list(v)) if index is None else (lambda v: v[index])
    parts = [
        module.LinearLR(optimizer, 0.1, total_iters=pick([2, 3, 4])),
        module.CosineAnnealingLR(optimizer, pick([5, 6, 7])),
        module.ExponentialLR(optimizer, pick([0.5, 0.9, 0.8])),
    ]
    milestones = [pick(start), pick([v + 4 for v in start])]
    return module.SequentialLR(optimizer, parts, milestones)
