# SPDX-License-Identifier: MIT
"""Schedules that a function makes in plain torch, against a loop over plain models."""

import copy

import pytest
import torch
from torch.optim import lr_scheduler

import dnnsuite
from dnnsuite.errors import InvalidArgument
from dnnsuite.tuning import Hyperband, LogUniform
from dnnsuite.tuning.slots import TorchSchedules

EPOCHS, BATCHES = 3, 4
BY_BATCH = ("one cycle", "cyclic", "warm-up")
SCHEDULES = {
    "one cycle": lambda o, c: lr_scheduler.OneCycleLR(o, max_lr=c["lr"], epochs=EPOCHS, steps_per_epoch=BATCHES),
    "cyclic": lambda o, c: lr_scheduler.CyclicLR(o, c["lr"] / 10, c["lr"], step_size_up=3),
    "plateau": lambda o, c: lr_scheduler.ReduceLROnPlateau(o, factor=0.3, patience=0, threshold=0.5),
    "lambda": lambda o, c: lr_scheduler.LambdaLR(o, lambda epoch: 0.5 ** (epoch * c["power"])),
    "milestones": lambda o, c: lr_scheduler.MultiStepLR(o, [1, 2], gamma=0.1),
    "sequence": lambda o, c: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o, 0.1, 1), lr_scheduler.ExponentialLR(o, 0.5)], [1]
    ),
    "warm-up": lambda o, c: lr_scheduler.LinearLR(o, 0.1, total_iters=5),
}
CONFIGS = [{"lr": lr, "power": power} for lr, power in ((0.3, 1.0), (0.1, 2.0), (0.03, 0.5))]


def model(config):
    return torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2)).double()


def optimizer(parameters, config):
    return torch.optim.SGD(parameters, lr=config["lr"], momentum=0.9)


def loss(net, x, y):
    return torch.nn.functional.cross_entropy(net(x.double()), y)


def by_hand(task, make, by_batch):
    """Losses on held-out data by trial and epoch."""
    found = []
    for number, config in enumerate(CONFIGS):
        torch.manual_seed(number)
        net = model(config)
        own = optimizer(net.parameters(), config)
        schedule = make(own, config)
        for epoch in range(EPOCHS):
            torch.manual_seed(epoch)
            for x, y in task.loader():
                own.zero_grad()
                loss(net, x, y).backward()
                own.step()
                if by_batch:
                    schedule.step()
            with torch.no_grad():
                found.append(loss(net, *task.valid).item())
            if not by_batch:
                schedule.step(*[found[-1]] * isinstance(schedule, lr_scheduler.ReduceLROnPlateau))
    return found


@pytest.mark.parametrize("name", list(SCHEDULES))
def test_any_schedule_of_torch_as_in_a_loop(task, name):
    options = {"scheduler_every": "batch"} if name == "warm-up" else {}
    sweep = dnnsuite.sweep(
        model, CONFIGS, task.loader(), evaluate=task.valid, loss=loss, optimizer=optimizer, scheduler=SCHEDULES[name],
        epochs=EPOCHS, width=2, out=False, quiet=True, **options,
    )  # fmt: skip
    assert sweep.history["loss"].tolist() == pytest.approx(by_hand(task, SCHEDULES[name], name in BY_BATCH), rel=1e-9)


@pytest.mark.parametrize("name", ["one cycle", "sequence"])
def test_a_schedule_goes_on_after_a_rung(task, tmp_path, name):
    class Stop(Exception):
        pass

    def stop(event):
        if event.kind == "epoch" and event.epoch == 2:
            raise Stop

    def swept(out, **options):
        return dnnsuite.sweep(
            model, {"lr": LogUniform(0.01, 0.3), "power": [1.0]}, task.loader(), evaluate=task.valid, loss=loss,
            optimizer=optimizer, scheduler=SCHEDULES[name], epochs=EPOCHS, algorithm=Hyperband(), out=out, quiet=True,
            **options,
        )  # fmt: skip

    whole = swept(tmp_path / "whole")
    with pytest.raises(Stop):
        swept(tmp_path / "out", callbacks=[stop])
    assert swept(tmp_path / "out", resume=True, width=1).history.equals(whole.history)


def test_a_state_has_neither_functions_nor_models(tmp_path):
    alone = [optimizer(model({}).parameters(), config) for config in CONFIGS]
    made = [SCHEDULES["lambda"](one, config) for one, config in zip(alone, CONFIGS, strict=True)]
    array = dnnsuite.fuse([model({}) for _ in CONFIGS])
    schedules = TorchSchedules(dnnsuite.optim.SGD(array.parameters(), [c["lr"] for c in CONFIGS], momentum=0.9), made)
    assert not any(group["params"] for one in alone for group in one.param_groups)
    schedules.step()
    torch.save(schedules.state_of(1), tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    assert state["schedule"]["last_epoch"] == 1
    other = copy.deepcopy(state)
    other["schedule"]["last_epoch"] = 2
    schedules.load(0, other)
    assert schedules.state_of(0)["schedule"]["last_epoch"] == 2


def test_bad_intervals(task):
    with pytest.raises(InvalidArgument, match="give 'epoch' or 'batch'"):
        dnnsuite.sweep(model, CONFIGS, task.loader(), optimizer=optimizer, scheduler_every="step", out=False)
    sweep = dnnsuite.sweep(
        model, CONFIGS, task.loader(), optimizer=optimizer, scheduler=SCHEDULES["one cycle"], epochs=4, loss=loss,
        out=False, quiet=True,
    )  # fmt: skip
    assert sweep.table["epochs"].tolist() == [3, 3, 3]
    assert sweep.table["message"].str.contains("Tried to step 13 times").all()
