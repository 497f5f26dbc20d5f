# SPDX-License-Identifier: MIT
"""Models that leave an array, come into it, or take another's place."""

import copy

import pytest
import torch

import dnnsuite
from dnnsuite import optim
from dnnsuite.errors import InvalidArgument
from helpers import make_models


def make():
    return torch.nn.Sequential(
        torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.ReLU(), torch.nn.Dropout(0.3), torch.nn.Linear(6, 2)
    )


def trained(B, steps=3):
    """An array, its optimizer, and how to go on training it."""
    models = make_models(make, B)
    array = dnnsuite.fuse(models, seeds=range(10, 10 + B))
    optimizer = optim.Adam(array.parameters(), lr=[0.01 * (i + 1) for i in range(B)])
    train(array, optimizer, steps, range(B))
    return array, optimizer


def batch(step, model):
    generator = torch.Generator().manual_seed(1000 * step + model)
    return torch.randn(5, 4, generator=generator)


def train(array, optimizer, steps, data):
    for step in range(steps):
        x = torch.stack([batch(step, model) for model in data])
        array(x).square().mean((1, 2)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def state(array, index):
    return {name: value[index].clone() for name, value in array.state_dict().items()}


def assert_same(a, b):
    for name, value in a.items():
        torch.testing.assert_close(b[name], value, rtol=0, atol=0, msg=name)


def test_dropped_models_leave_the_others_as_they_are():
    array, optimizer = trained(4)
    whole, whole_optimizer = trained(4)
    parameters = [id(p) for p in array.parameters()]
    array.drop([0, 2], optimizer)
    assert array.B == len(array) == 2
    assert [id(p) for p in array.parameters()] == parameters
    train(array, optimizer, 2, [1, 3])
    train(whole, whole_optimizer, 2, range(4))
    for mine, theirs in ((0, 1), (1, 3)):
        assert_same(state(array, mine), state(whole, theirs))


def test_a_loss_of_before_may_be_held():
    """As a training loop's variable does."""

    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.randn(4))

        def forward(self, x):
            return x * self.scale

    array = dnnsuite.fuse([Scaled() for _ in range(3)])
    x = torch.randn(3, 5, 4)
    loss = array(x).sum()
    loss.backward()
    array.drop(1)
    array(x[:2]).sum().backward()
    torch.testing.assert_close(array.get_parameter("scale").grad, x[0::2].sum(1) + x[:2].sum(1))
    assert loss.requires_grad


def test_an_appended_model_is_trained_like_the_others():
    array, optimizer = trained(2)
    (new,) = make_models(make, 1)
    array.append(new, optimizer, lr=0.05)
    assert array.B == 3
    assert_same(new.state_dict(), state(array, 2))
    before = state(array, 0)
    train(array, optimizer, 1, range(3))
    assert not torch.equal(before["0.weight"], array.state_dict()["0.weight"][0])
    assert optimizer.to_model(2, array[2].parameters()).param_groups[0]["lr"] == pytest.approx(0.05)


def test_a_replaced_model_starts_anew():
    array, optimizer = trained(3)
    (new,) = make_models(make, 1)
    array.replace(1, new, optimizer, lr=0.5)
    assert_same(new.state_dict(), state(array, 1))
    held = optimizer.state[array.get_submodule("0").weight]["exp_avg"]
    assert not held[1].any()
    assert held[0].any()


def addresses(array, optimizer):
    states = [value for own in optimizer.state.values() for value in own.values()]
    vectors = [value for group in optimizer.param_groups for value in group.values()]
    tensors = [*array.parameters(), *array.buffers(), *states, *vectors]
    return [one.data_ptr() for one in tensors if isinstance(one, torch.Tensor)]


def test_edits_of_as_many_models_leave_every_tensor_in_its_place():
    array, optimizer = trained(4)
    places, held = addresses(array, optimizer), optimizer.param_groups[0]["lr"]
    others = [state(array, i) for i in (0, 2)]
    (new,) = make_models(make, 1)
    array.replace(3, new, optimizer, lr=0.25)
    array.clone(2, optimizer, into=1)
    assert addresses(array, optimizer) == places
    assert held[3] == 0.25
    assert_same(new.state_dict(), state(array, 3))
    for before, index in zip(others, (0, 2), strict=True):
        assert_same(before, state(array, index))
    assert_same(others[1], state(array, 1))
    array.drop(0, optimizer)
    assert addresses(array, optimizer) != places


def test_a_companion_that_refuses_leaves_models_written_in_place_as_they_were():
    array, optimizer = trained(3)
    picky = dnnsuite.optim.lr_scheduler.StepLR(optimizer, [1, 2, 3], 0.5)
    scaler = dnnsuite.optim.GradScaler("cpu", init_scale=[1.0, 2.0, 3.0], B=3)
    before = [state(array, i) for i in range(3)]
    states = {p: {n: v.clone() for n, v in own.items()} for p, own in optimizer.state.items()}
    vectors = {n: v.clone() for n, v in optimizer.param_groups[0].items() if isinstance(v, torch.Tensor)}
    with pytest.raises(InvalidArgument, match="needs step_size"):
        array.replace(1, make(), optimizer, scaler, picky, lr=0.5)
    assert scaler.get_scale().tolist() == [1.0, 2.0, 3.0]
    for index, held in enumerate(before):
        assert_same(held, state(array, index))
    for parameter, own in states.items():
        assert_same(own, optimizer.state[parameter])
    assert_same(vectors, {name: optimizer.param_groups[0][name] for name in vectors})


def test_a_new_models_state_begins_as_its_kind_of_optimizer_says():
    array = dnnsuite.fuse(make_models(make, 3))
    optimizer = dnnsuite.optim.Adagrad(array.parameters(), lr=0.1, initial_accumulator_value=[1.0, 2.0, 3.0])
    train(array, optimizer, 2, range(3))
    sums = optimizer.state[array.get_submodule("0").weight]["sum"]
    kept = sums[0].clone()
    array.replace(1, make(), optimizer, initial_accumulator_value=5.0)
    assert (sums[1] == 5.0).all()
    assert torch.equal(sums[0], kept)


@pytest.mark.parametrize("training", [True, False])
def test_a_part_that_stays_in_eval_mode_does_so_in_new_models(training):
    """As a teacher does, and whatever the mode of the array."""

    def frozen():
        return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4).eval())

    first, new = make_models(frozen, 2), frozen()
    array = dnnsuite.fuse(first)
    array.get_submodule("0").train(training)
    array.replace(1, new)
    x = torch.randn(2, 5, 4)
    assert not array.get_submodule("1").training
    torch.testing.assert_close(array(x)[1], new(x[1]))


def test_a_clone_goes_on_from_the_same_state():
    array, optimizer = trained(3)
    array.clone(2, optimizer, into=0)
    assert_same(state(array, 2), state(array, 0))
    array.clone(1, optimizer)
    assert array.B == 4
    assert_same(state(array, 1), state(array, 3))
    train(array, optimizer, 1, [2, 1, 2, 1])
    assert_same(state(array, 2), state(array, 0))
    assert_same(state(array, 1), state(array, 3))


class Refusing:
    def select(self, slots, **fresh):
        raise InvalidArgument("no")


def test_refused_edits_change_nothing():
    array, optimizer = trained(2)
    before = [state(array, i) for i in range(2)]
    refused = [
        lambda: array.drop([0, 1], optimizer),
        lambda: array.drop(5, optimizer),
        lambda: array.append(torch.nn.Sequential(torch.nn.Linear(4, 6)), optimizer),
        lambda: array.replace(0, torch.nn.Linear(4, 2), optimizer),
        lambda: array.append(make(), Refusing()),
        lambda: array.append(make(), torch.optim.SGD(make().parameters(), lr=0.1)),
        lambda: array.clone(-3, optimizer),
    ]
    for edit in refused:
        with pytest.raises(InvalidArgument):
            edit()
    assert array.B == 2
    for index, held in enumerate(before):
        assert_same(held, state(array, index))


def test_a_companion_that_refuses_leaves_the_others_as_they_were():
    array, optimizer = trained(2)
    plain = dnnsuite.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    schedule = dnnsuite.optim.lr_scheduler.ChainedScheduler([plain])
    picky = dnnsuite.optim.lr_scheduler.StepLR(optimizer, [1, 2], 0.5)
    scaler = dnnsuite.optim.GradScaler("cpu", B=2)
    rates = optimizer.param_groups[0]["lr"].clone()
    before = {p: {n: v.clone() for n, v in own.items()} for p, own in optimizer.state.items()}
    with pytest.raises(InvalidArgument, match="needs step_size"):
        array.append(make(), optimizer, scaler, schedule, picky, lr=0.5)
    assert (array.B, optimizer.B, scaler.B, schedule.B, len(plain.last_epoch)) == (2, 2, 2, 2, 2)
    assert torch.equal(optimizer.param_groups[0]["lr"], rates)
    for parameter, own in before.items():
        assert_same(own, optimizer.state[parameter])
    array.append(make(), optimizer, scaler, schedule, picky, lr=0.5, step_size=3, init_scale=4.0)
    assert scaler.get_scale().tolist() == [65536.0, 65536.0, 4.0]
    assert float(optimizer.param_groups[0]["lr"][2]) == 0.5


def test_a_difference_is_named():
    array, _ = trained(2)
    wider = make()
    wider[4] = torch.nn.Linear(6, 3)
    with pytest.raises(InvalidArgument, match=r"at 4: the array and the new model differ: Linear\.out_features is 2"):
        array.append(wider)


def test_half_the_models_dropped_from_a_users_own_code():
    class Own(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(4, 4))

        def forward(self, x):
            return torch.nn.functional.dropout(x @ self.weight, 0.5, self.training)

    array = dnnsuite.fuse(make_models(Own, 4), seeds=[1, 2, 3, 4])
    kept = array.narrow(2, 2)
    x = torch.randn(4, 3, 4)
    expected = array.weight[2:].clone()
    array.drop([0, 1])
    assert torch.equal(array.weight, expected)
    assert array(x[2:]).shape == (2, 3, 4)
    assert kept.B == 2


def test_weights_and_their_states_go_on_lying_as_they_did():
    def images():
        return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten())

    array = dnnsuite.fuse(make_models(images, 3))
    optimizer = optim.Adam(array.parameters(), lr=0.1)
    whole, whole_optimizer = copy.deepcopy(array), None
    whole_optimizer = optim.Adam(whole.parameters(), lr=0.1)

    def step(array, optimizer, x):
        array(x).square().mean((1, 2)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    x = torch.randn(3, 2, 3, 5, 5)
    for one in ((array, optimizer), (whole, whole_optimizer)):
        step(*one, x)
    array.drop([1], optimizer)
    (weight, _) = array.parameters()
    step(array, optimizer, x[[0, 2]])
    step(whole, whole_optimizer, x)
    for value in (weight, *(optimizer.state[weight][name] for name in ("exp_avg", "exp_avg_sq"))):
        assert value.movedim(2, -1).is_contiguous()
    for mine, theirs in ((0, 0), (1, 2)):
        assert_same(state(array, mine), state(whole, theirs))
    optimizer.state[weight]["exp_avg"] = optimizer.state[weight]["exp_avg"].contiguous()  # as of an older file
    step(array, optimizer, x[[0, 2]])
    step(whole, whole_optimizer, x)
    for mine, theirs in ((0, 0), (1, 2)):
        assert_same(state(array, mine), state(whole, theirs))


def test_several_at_once_are_as_one_after_another():
    (first, first_optimizer), (second, second_optimizer) = trained(4), trained(4)
    new = make_models(make, 5)
    for slot, model, lr in zip((1, 3), new[:2], (0.1, 0.2), strict=True):
        first.replace(slot, model, first_optimizer, lr=lr)
    for model, lr in zip(new[2:], (0.3, 0.4, 0.5), strict=True):
        first.append(model, first_optimizer, lr=lr)
    second.replace([1, 3], new[:2], second_optimizer, lr=[0.1, 0.2])
    second.append(new[2:], second_optimizer, lr=[0.3, 0.4, 0.5])
    for array in (first, second):
        dnnsuite.nn.seed(array, range(7))
    train(first, first_optimizer, 2, range(7))
    train(second, second_optimizer, 2, range(7))
    assert second.B == 7
    for slot in range(7):
        assert_same(state(first, slot), state(second, slot))
    assert torch.equal(first_optimizer.param_groups[0]["lr"], second_optimizer.param_groups[0]["lr"])


def test_several_that_do_not_fit_change_nothing():
    array, optimizer = trained(3)
    before = {name: value.clone() for name, value in array.state_dict().items()}
    new = [*make_models(make, 1), torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU())]
    with pytest.raises(InvalidArgument, match="the array and new model 2 differ"):
        array.replace([0, 2], new, optimizer, lr=[0.1, 0.2])
    for slots in ([2, 0], [1, 1], [1]):
        with pytest.raises(InvalidArgument, match=r"2 models for the slots .* in ascending order"):
            array.replace(slots, make_models(make, 2), optimizer, lr=0.1)
    assert_same(array.state_dict(), before)
