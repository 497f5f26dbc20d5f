# SPDX-License-Identifier: MIT
import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR

from dnnsuite.training.schedules import PerEpoch, SteppedWarmup, WarmupPlateau, tbd_pytorch, tbd_tf2


def optimizer(*rates: float) -> torch.optim.Optimizer:
    groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": rate} for rate in rates]
    return torch.optim.SGD(groups, lr=1.0)


def rates_of(schedule, optimizer, losses, group=0):
    """Learning rates in force in each epoch."""
    found = []
    for epoch, loss in enumerate(losses):
        schedule.begin_epoch(epoch)
        found.append(optimizer.param_groups[group]["lr"])
        schedule.end_epoch(epoch, loss)
    return found


@pytest.mark.parametrize(("epochs", "peak"), [(8, 0.28), (16, 0.4)])
def test_warm_up_is_sc20s_in_every_group(epochs, peak):
    sgd = optimizer(peak, peak / 10)
    schedule = WarmupPlateau(sgd, epochs)
    first = []
    for epoch in range(epochs + 1):
        schedule.begin_epoch(epoch)
        first.append([group["lr"] for group in sgd.param_groups])
        schedule.end_epoch(epoch, 1.0)
    expected = [peak * min(epoch + 1, epochs) / epochs for epoch in range(epochs + 1)]
    assert [each[0] for each in first] == pytest.approx(expected)
    assert [each[1] for each in first] == pytest.approx([value / 10 for value in expected])


def test_a_constant_loss_is_cut_in_the_twelfth_call():
    sgd = optimizer(0.1)
    found = rates_of(WarmupPlateau(sgd), sgd, [1.0] * 13)
    assert found == pytest.approx([0.1] * 12 + [0.02])


def test_losses_of_warm_up_are_not_counted():
    sgd = optimizer(0.4)
    found = rates_of(WarmupPlateau(sgd, 16), sgd, [0.5] * 16 + [1.0] * 13)
    assert found[16:] == pytest.approx([0.4] * 12 + [0.08])


def test_a_resumed_plateau_keeps_its_best_and_its_count():
    losses = [1.0] * 6 + [1.1] * 12
    sgd = optimizer(0.1)
    whole = rates_of(WarmupPlateau(sgd), sgd, losses)
    sgd = optimizer(0.1)
    schedule = WarmupPlateau(sgd)
    first = rates_of(schedule, sgd, losses[:9])
    again = optimizer(0.1)
    resumed = WarmupPlateau(again)
    resumed.load_state_dict(schedule.state_dict())
    again.load_state_dict(sgd.state_dict())
    rest = []
    for epoch, loss in enumerate(losses[9:], 9):
        resumed.begin_epoch(epoch)
        rest.append(again.param_groups[0]["lr"])
        resumed.end_epoch(epoch, loss)
    assert first + rest == whole


def lr_at(schedule, sgd, step):
    schedule.begin_step(step)
    return sgd.param_groups[0]["lr"]


def test_tbds_tensorflow_schedule():
    sgd = optimizer(0.15)
    schedule = tbd_tf2(sgd, 3336)
    steps = [0, 100, 8340, 16680, 100_080, 100_081, 200_161, 266_881]
    expected = [0, 0.0008993, 0.075, 0.15, 0.15, 0.015, 0.0015, 0.00015]
    assert [lr_at(schedule, sgd, step) for step in steps] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("peak", [0.0125, 0.1])
def test_tbds_pytorch_schedule(peak):
    sgd = optimizer(peak)
    schedule = tbd_pytorch(sgd, 10)
    found = [lr_at(schedule, sgd, 10 * epoch) for epoch in (0, 29, 30, 59, 60, 80, 89)]
    assert found == pytest.approx([peak * f for f in (1, 1, 0.1, 0.1, 0.01, 0.001, 0.001)])


def test_any_of_torchs_schedulers():
    sgd, reference = optimizer(0.1), optimizer(0.1)
    theirs = CosineAnnealingLR(reference, 4)
    expected = []
    for _ in range(4):
        expected.append(reference.param_groups[0]["lr"])
        reference.step()
        theirs.step()
    ours = PerEpoch(CosineAnnealingLR(sgd, 4))
    sgd.step()
    assert rates_of(ours, sgd, [1.0] * 4) == expected


def test_constant_after_warm_up():
    sgd = optimizer(1.0)
    schedule = SteppedWarmup(sgd, 4, (), warmup_epochs=1)
    assert [lr_at(schedule, sgd, step) for step in range(6)] == [0, 0.25, 0.5, 0.75, 1, 1]
