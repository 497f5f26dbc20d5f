# SPDX-License-Identifier: MIT
import copy

import pytest
import torch

from dnnsuite import fuse, optim, unfuse
from dnnsuite.errors import InvalidArgument
from helpers import assert_near, make_models

RATES = [0.1, 0.01, 0.05]
BETAS = ([0.9, 0.5, 0.8], 0.99)


def body():
    return torch.nn.Linear(4, 5)


def head():
    return torch.nn.Linear(5, 2)


def parts(B=3):
    bodies, heads = make_models(body, B), make_models(head, B)
    array = fuse(bodies)
    plain = [torch.optim.Adam(h.parameters(), lr=RATES[b], betas=(BETAS[0][b], BETAS[1])) for b, h in enumerate(heads)]
    fused = optim.Adam(array.parameters(), lr=RATES[:B], betas=(BETAS[0][:B], BETAS[1]), on_nan="skip")
    return array, heads, optim.PartiallyFused(fused, plain)


def own(value, index):
    if isinstance(value, tuple):
        return tuple(own(part, index) for part in value)
    return value[index] if isinstance(value, list) else value


def backward(array, heads, x):
    hidden = array(x)
    sum(h(hidden[b]).square().sum() for b, h in enumerate(heads)).backward()


def test_is_separate_models_with_schedules():
    array, heads, optimizer = parts()
    bodies, others = unfuse(array), make_models(head, 3)
    schedule = optim.lr_scheduler.StepLR(optimizer, [1, 2, 3], 0.5)
    data = torch.randn(4, 3, 6, 4)
    for x in data:
        optimizer.zero_grad()
        backward(array, heads, x)
        optimizer.step()
        schedule.step()
    for b in range(3):
        alone = torch.nn.Sequential(bodies[b], others[b])
        its = torch.optim.Adam(alone.parameters(), lr=RATES[b], betas=(BETAS[0][b], BETAS[1]))
        steps = torch.optim.lr_scheduler.StepLR(its, [1, 2, 3][b], 0.5)
        for x in data:
            its.zero_grad()
            alone(x[b]).square().sum().backward()
            its.step()
            steps.step()
        for p, q in zip(alone[1].parameters(), heads[b].parameters(), strict=True):
            assert_near(q, p)
        for p, q in zip(alone[0].parameters(), array.parameters(), strict=True):
            assert_near(q[b], p)


def test_what_is_assigned_reaches_both_parts():
    array, heads, optimizer = parts()
    bodies, others = unfuse(array), make_models(head, 3)
    alone = [torch.optim.Adam([*b.parameters(), *o.parameters()], lr=0.1) for b, o in zip(bodies, others, strict=True)]
    changes = [
        {"lr": 0.1, "betas": (0.9, 0.99)},
        {"lr": [0.2, 0.1, 0.05]},
        {"betas": ([0.5, 0.6, 0.7], 0.9), "maximize": True},
    ]
    for x, change in zip(torch.randn(3, 3, 6, 4), changes, strict=True):
        for group in optimizer.param_groups:
            group.update(change)
        optimizer.zero_grad()
        backward(array, heads, x)
        optimizer.step()
        for index, one in enumerate(alone):
            for name, value in change.items():
                one.param_groups[0][name] = own(value, index)
            one.zero_grad()
            others[index](bodies[index](x[index])).square().sum().backward()
            one.step()
    for index in range(3):
        for p, q in zip(others[index].parameters(), heads[index].parameters(), strict=True):
            assert_near(q, p)
        for p, q in zip(bodies[index].parameters(), array.parameters(), strict=True):
            assert_near(q[index], p)
    copied = copy.deepcopy(optimizer)
    for one in (optimizer, copied):
        with pytest.raises(InvalidArgument, match=r"param_groups\[1\]\['lr'\] = 'x'"):
            one.param_groups[1]["lr"] = "x"


def test_a_model_that_does_not_step_does_so_in_neither_part():
    array, heads, optimizer = parts()
    optimizer.freeze(2)
    before = [h.weight.detach().clone() for h in heads]
    x = torch.randn(3, 6, 4)
    x[1] = torch.nan
    backward(array, heads, x)
    optimizer.step()
    assert [torch.equal(h.weight, old) for h, old in zip(heads, before, strict=True)] == [False, True, True]
    assert optimizer.frozen == [2]
    optimizer.unfreeze(2)
    assert optimizer.frozen == []


def test_state_goes_on():
    array, heads, optimizer = parts()
    x = torch.randn(3, 6, 4)
    optim.lr_scheduler.ExponentialLR(optimizer, 0.5).step()
    backward(array, heads, x)
    optimizer.step()
    state = optimizer.state_dict()
    *_, again = parts()
    again.load_state_dict(state)
    assert again.plain[1].param_groups[0]["lr"] == 0.005
    assert again.param_groups[1]["lr"].tolist() == pytest.approx([0.05, 0.005, 0.025])
    for one, other in zip(optimizer.plain, again.plain, strict=True):
        assert len(one.state) == len(other.state) == 2


def test_select_takes_new_plain_parts():
    array, heads, optimizer = parts()
    schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    for p in array.parameters():
        p.data = p.data[[2, 0]]
    optimizer.select([2, 0], [optimizer.plain[2], optimizer.plain[0]])
    schedule.select([2, 0])
    schedule.step()
    assert optimizer.B == 2
    assert optimizer.param_groups[1]["lr"].tolist() == pytest.approx([0.025, 0.05])
    array.zero_grad()
    x = torch.randn(2, 6, 4)
    hidden = torch.stack(
        [torch.nn.functional.linear(x[b], p[b]) for b, p in ((0, _weight(array)), (1, _weight(array)))]
    )
    (heads[2](hidden[0]).sum() + heads[0](hidden[1]).sum()).backward()
    optimizer.step()


def _weight(array):
    return next(p for p in array.parameters() if p.dim() == 3)


def test_models_that_leave_take_their_plain_parts_along():
    array, _, optimizer = parts()
    kept = optimizer.plain[0], optimizer.plain[2]
    array.drop([1], optimizer)
    assert optimizer.B == 2
    assert tuple(optimizer.plain) == kept
    for wrong in ([0, 0], [0, None]):
        with pytest.raises(InvalidArgument, match="give `plain`"):
            optimizer.select(wrong)


@pytest.mark.parametrize("unscale", [False, True])
@pytest.mark.parametrize("part", ["fused", "plain"])
def test_a_scale_for_each_model(unscale, part):
    """An overflow in either part of a model skips both, and no other model."""
    array, heads, optimizer = parts()
    plain_array, plain_heads, reference = parts()
    scaler = optim.GradScaler("cpu", init_scale=[8.0, 4.0, 2.0], growth_interval=2, B=3)
    data = torch.randn(3, 3, 6, 4)
    for number, x in enumerate(data):
        optimizer.zero_grad()
        hidden = array(x)
        losses = torch.stack([h(hidden[b]).square().sum() for b, h in enumerate(heads)])
        scaler.scale(losses).sum().backward()
        if number == 1:
            spoiled = heads[1].weight if part == "plain" else _weight(array)
            spoiled.grad[0 if part == "plain" else 1] = torch.inf
        if unscale:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        reference.zero_grad()
        backward(plain_array, plain_heads, x)
        if number == 1:
            reference.freeze(1)
        reference.step()
        reference.unfreeze(1)
    for b in range(3):
        assert_near(_weight(array)[b], _weight(plain_array)[b])
        assert_near(heads[b].weight, plain_heads[b].weight)
    assert scaler.get_scale().tolist() == [16.0, 2.0, 4.0]


def test_refuses_what_does_not_fit():
    *_, optimizer = parts()
    with pytest.raises(InvalidArgument, match="2 plain optimizers for an array of 3"):
        optim.PartiallyFused(optimizer.fused, optimizer.plain[:2])
    with pytest.raises(InvalidArgument, match="1 plain optimizers for 3 models"):
        optimizer.select([0, 1, 2], optimizer.plain[:1])
    *_, small = parts(2)
    with pytest.raises(InvalidArgument, match="state is that of 2 models"):
        optimizer.load_state_dict(small.state_dict())
