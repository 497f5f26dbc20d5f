# SPDX-License-Identifier: MIT
"""torch's schedulers and those of others on the optimizer of an array, against separate models."""

import math

import pytest
import torch
from torch.optim import lr_scheduler, swa_utils

from dnnsuite import StepRunner, fuse, optim
from dnnsuite.errors import InvalidArgument
from helpers import assert_near, make_models

B, STEPS = 3, 9
LR = [0.1, 0.05, 0.2]


class Warmup:
    """As transformers' and timm's: a number is assigned to each group, from the rate that it began with."""

    def __init__(self, optimizer):
        self.optimizer, self.count = optimizer, 0
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self.step()

    def step(self):
        self.count += 1
        for group in self.optimizer.param_groups:
            group["lr"] = 0.01 * self.count
            group["my_count"] = self.count


class Dampening:
    """As pytorch-warmup: the rates are multiplied in place and put back."""

    def __init__(self, optimizer):
        self.optimizer, self.count = optimizer, 0
        self.kept = [group["lr"] for group in optimizer.param_groups]
        self.step()

    def step(self):
        self.count += 1
        for group, kept in zip(self.optimizer.param_groups, self.kept, strict=True):
            group["lr"] = kept * min(1.0, self.count / 4)


def chained(optimizer):
    return lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(optimizer, 0.1, 3), lr_scheduler.ExponentialLR(optimizer, 0.9)]
    )


def sequential(optimizer):
    parts = [lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3), lr_scheduler.CosineAnnealingLR(optimizer, 4)]
    return lr_scheduler.SequentialLR(optimizer, parts, [3])


SCHEDULES = {
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda t: 0.9**t),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda t: 0.8),
    "StepLR": lambda o: lr_scheduler.StepLR(o, 2, 0.5),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 5], 0.5),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, 0.5, 3),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, 0.1, total_iters=4),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.8),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 5),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 5, 0.01),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, 3),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.3, STEPS + 1),
    "ChainedScheduler": chained,
    "SequentialLR": sequential,
    "SWALR": lambda o: swa_utils.SWALR(o, 0.02, 4),
    "warm-up": Warmup,
    "dampening": Dampening,
}
OPTIMIZERS = {"SGD": {"momentum": 0.9}, "AdamW": {"betas": (0.9, 0.99)}}


def mlp():
    return torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))


def batches():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(B, 6, 4, generator=generator, dtype=torch.float64) for _ in range(STEPS)]


def loss_of(model, x):
    return model(x).square().mean((-1, -2))


def separate(models, optimizers, schedules):
    for x in batches():
        for index, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            optimizer.zero_grad()
            loss_of(model, x[index]).backward()
            optimizer.step()
            schedules[index].step()


def check(array, models):
    for index, model in enumerate(models):
        for mine, theirs in zip(array[index].parameters(), model.parameters(), strict=True):
            assert_near(mine, theirs)


@pytest.mark.parametrize(
    ("name", "kind"), [(name, list(OPTIMIZERS)[place % 2]) for place, name in enumerate(SCHEDULES)]
)
def test_drives_an_array_as_it_drives_separate_models(name, kind):
    models = make_models(mlp, B, torch.float64)
    array = fuse(models)
    optimizer = getattr(optim, kind)(array.parameters(), lr=LR, **OPTIMIZERS[kind])
    schedule = SCHEDULES[name](optimizer)
    for x in batches():
        optimizer.zero_grad()
        loss_of(array, x).sum().backward()
        optimizer.step()
        schedule.step()
    alone = [
        getattr(torch.optim, kind)(m.parameters(), lr=lr, **OPTIMIZERS[kind]) for m, lr in zip(models, LR, strict=True)
    ]
    separate(models, alone, [SCHEDULES[name](one) for one in alone])
    check(array, models)
    rates = optimizer.param_groups[0]["lr"].tolist()
    assert rates == pytest.approx([one.param_groups[0]["lr"] for one in alone], rel=1e-12)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("name", "threads"), [("OneCycleLR", 2), ("SequentialLR", 1), ("warm-up", 1)])
def test_drives_captured_steps(name, threads):
    models = make_models(mlp, B, torch.float64)
    array = fuse(models)
    optimizer = optim.SGD(array.parameters(), lr=LR, momentum=0.9)
    schedule = SCHEDULES[name](optimizer)
    with StepRunner(array, optimizer, loss_of, threads=threads, width=2) as runner:
        for x in batches():
            runner.step(x)
            schedule.step()
        runner.synchronize()
        assert runner.mode == "captured"
    alone = [torch.optim.SGD(m.parameters(), lr=lr, momentum=0.9) for m, lr in zip(models, LR, strict=True)]
    separate(models, alone, [SCHEDULES[name](one) for one in alone])
    check(array, models)


def test_a_plateau_of_all_models_and_one_of_each():
    array = fuse(make_models(mlp, B, torch.float64))
    optimizer = optim.SGD(array.parameters(), lr=0.1)
    plateau = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
    for metric in (1.0, 2.0, 3.0):
        plateau.step(metric)
    assert optimizer.param_groups[0]["lr"].tolist() == [0.025] * B
    optimizer.param_groups[0]["lr"] = LR
    with pytest.raises(InvalidArgument, match=r"lr differs from model to model.*dnnsuite\.optim\.lr_scheduler"):
        plateau.step(4.0)


def averages(model, other):
    ema = swa_utils.get_ema_multi_avg_fn(0.9)
    return swa_utils.AveragedModel(model), swa_utils.AveragedModel(other, multi_avg_fn=ema, use_buffers=True)


def convolutions():
    return torch.nn.Sequential(
        torch.nn.Conv2d(2, 3, 3), torch.nn.BatchNorm2d(3, momentum=0.3), torch.nn.ReLU(), torch.nn.Flatten()
    )


def test_averages_and_their_statistics_are_those_of_separate_models():
    models = make_models(convolutions, B, torch.float64)
    array = fuse(models)
    optimizer = optim.SGD(array.parameters(), lr=LR)
    alone = [torch.optim.SGD(m.parameters(), lr=lr) for m, lr in zip(models, LR, strict=True)]
    mine, theirs = averages(array, array), [averages(m, m) for m in models]
    given = [torch.randn(B, 4, 2, 5, 5, dtype=torch.float64) for _ in range(4)]
    for x in given:
        optimizer.zero_grad()
        array(x).square().mean((1, 2)).sum().backward()
        optimizer.step()
        for index, (model, one) in enumerate(zip(models, alone, strict=True)):
            one.zero_grad()
            model(x[index]).square().mean().backward()
            one.step()
            for average in theirs[index]:
                average.update_parameters(model)
        for average in mine:
            average.update_parameters(array)
    for place in range(2):
        swa_utils.update_bn(given, mine[place])
        for index in range(B):
            swa_utils.update_bn([x[index] for x in given], theirs[index][place])
            theirs[index][place].eval()
        mine[place].eval()
        expected = torch.stack([theirs[index][place](given[0][index]) for index in range(B)])
        assert_near(mine[place](given[0]), expected)
        assert math.isfinite(float(expected.detach().sum()))
