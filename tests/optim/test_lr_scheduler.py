# SPDX-License-Identifier: MIT
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dnnsuite import optim
from dnnsuite.errors import InvalidArgument


def parameter(B):
    return torch.nn.Parameter(torch.ones(B, 3))


@given(
    st.lists(st.tuples(st.floats(1e-6, 10), st.integers(1, 6), st.floats(0.01, 2)), min_size=1, max_size=4),
    st.integers(0, 15),
)
def test_step_lr_is_torchs_for_every_model(models, epochs):
    lr, step_size, gamma = (list(values) for values in zip(*models, strict=True))
    optimizer = optim.SGD([parameter(len(models))], lr=lr)
    schedule = optim.lr_scheduler.StepLR(optimizer, step_size, gamma)
    alone = [torch.optim.SGD([parameter(1)], lr=value) for value in lr]
    schedules = [
        torch.optim.lr_scheduler.StepLR(o, s, g) for o, s, g in zip(alone, step_size, gamma, strict=True)
    ]
    for _ in range(epochs):
        optimizer.step()
        schedule.step()
        for one, its in zip(alone, schedules, strict=True):
            one.step()
            its.step()
    assert optimizer.param_groups[0]["lr"].tolist() == [o.param_groups[0]["lr"] for o in alone]
    assert schedule.get_last_lr()[0].tolist() == [s.get_last_lr()[0] for s in schedules]


def test_goes_on_from_its_state():
    optimizer = optim.SGD([parameter(2)], lr=1.0)
    schedule = optim.lr_scheduler.StepLR(optimizer, 2, [0.5, 0.1])
    schedule.step()
    again = optim.lr_scheduler.StepLR(optimizer, 2)
    again.load_state_dict(schedule.state_dict())
    again.step()
    assert optimizer.param_groups[0]["lr"].tolist() == [0.5, 0.1]


def test_every_group_is_scheduled():
    optimizer = optim.SGD([{"params": [parameter(2)], "lr": 1.0}, {"params": [parameter(2)], "lr": 2.0}])
    optim.lr_scheduler.StepLR(optimizer, 1, 0.5).step()
    assert [group["lr"].tolist() for group in optimizer.param_groups] == [[0.5, 0.5], [1.0, 1.0]]


def test_refuses_a_torch_optimizer_and_an_empty_period():
    with pytest.raises(InvalidArgument, match=r"torch\.optim\.lr_scheduler"):
        optim.lr_scheduler.StepLR(torch.optim.SGD([parameter(2)]), 1)
    with pytest.raises(InvalidArgument, match="1 or more"):
        optim.lr_scheduler.StepLR(optim.SGD([parameter(2)]), [3, 0])
