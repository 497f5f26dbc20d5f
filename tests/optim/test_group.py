# SPDX-License-Identifier: MIT
"""Hyper-parameters and flags that are assigned between steps, against separate models of torch."""

import copy
import pickle

import pytest
import torch

from dnnsuite import StepRunner, fuse, nn, optim
from dnnsuite.errors import InvalidArgument
from helpers import assert_near, make_models

B = 3
# For each optimizer: its arguments, and what is assigned before steps 3, 5, 7 and 9.
CHANGES = {
    "SGD": (
        {"lr": 0.1, "momentum": 0.9},
        {"lr": 0.05, "momentum": [0.5, 0.9, 0.8], "weight_decay": 0.1, "nesterov": True},
    ),
    "SGD, plain": ({"lr": 0.1, "class": "SGD"}, {"momentum": [0.0, 0.9, 0.5], "lr": [0.1, 0.2, 0.3], "maximize": True}),
    "SGD, damped": (
        {"lr": 0.1, "dampening": 0.5, "class": "SGD"},
        {"momentum": [0.0, 0.9, 0.5], "lr": 0.2, "weight_decay": 0.1, "dampening": [0.3, 0.2, 0.1]},
    ),
    "Adam": ({}, {"lr": 0.01, "betas": ([0.8, 0.9, 0.7], 0.99), "weight_decay": [0.1, 0, 0.2], "eps": 1e-6}),
    "AdamW": ({"amsgrad": True}, {"weight_decay": [0.1, 0.3, 0.2], "maximize": True, "lr": [0.1, 0.01, 0.02]}),
    "NAdam": ({}, {"momentum_decay": [0.1, 0.01, 0.2], "decoupled_weight_decay": True, "weight_decay": 0.1}),
    "RAdam": ({}, {"lr": [0.1, 0.02, 0.03], "betas": (0.8, 0.99)}),
    "Adamax": ({}, {"lr": [0.1, 0.02, 0.03], "eps": 1e-4}),
    "Adadelta": ({}, {"rho": [0.8, 0.9, 0.7], "lr": 0.5, "eps": [1e-5, 1e-4, 1e-6]}),
    "Adagrad": ({}, {"lr_decay": 0.1, "lr": [0.1, 0.02, 0.03]}),
    "RMSprop": ({"momentum": 0.5}, {"alpha": [0.8, 0.9, 0.7], "momentum": [0.9, 0.1, 0.0], "lr": 0.02}),
    "ASGD": ({}, {"lr": [0.1, 0.02, 0.03], "t0": 3.0, "lambd": [0.1, 0.01, 0.02]}),
    "Rprop": ({}, {"etas": ([0.4, 0.5, 0.6], 1.3), "step_sizes": (1e-5, [1.0, 2.0, 3.0])}),
}
FORMS = (
    lambda v: v,
    lambda v: v,
    lambda v: torch.tensor(v, dtype=torch.float32),
    lambda v: torch.tensor(v, dtype=torch.float64),
)
MODES = {
    "by hand": None,
    "eager": {"capture": False, "threads": 1, "width": 2},
    "captured": {"threads": 1, "width": B},
    "two threads": {"threads": 2, "width": 1},
}


@pytest.fixture(autouse=True)
def in_float64():
    """torch keeps scalars such as ASGD's eta in the default dtype."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def mlp():
    return torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))


def batches(count):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(B, 6, 4, generator=generator, dtype=torch.float64) for _ in range(count)]


def loss_of(model, x):
    return model(x).square().mean((-1, -2))


def own(value, index):
    """Model `index`'s part of a value."""
    if isinstance(value, tuple):
        return tuple(own(part, index) for part in value)
    if isinstance(value, list):
        return value[index]
    if isinstance(value, torch.Tensor):
        return float(value[index] if value.dim() else value)
    return value


def forms(changes):
    """The changes by step: tuples and flags as they are, other values in one form after the other."""
    at = {}
    for place, (name, value) in enumerate(changes.items()):
        as_is = isinstance(value, (tuple, bool))
        at[3 + 2 * place] = name, value if as_is else FORMS[place % 4](value)
    return at


def train(array, optimizer, mode, steps, before_step, settle=False):
    """Train on fixed batches; `before_step(t)` comes before step t, after the steps before it if `settle`."""
    if mode is None:
        for t, x in enumerate(batches(steps)):
            before_step(t)
            optimizer.zero_grad()
            loss_of(array, x).sum().backward()
            optimizer.step()
        return None
    with StepRunner(array, optimizer, loss_of, **mode) as runner:
        for t, x in enumerate(batches(steps)):
            if settle:
                runner.synchronize()
            before_step(t)
            runner.step(x)
        runner.synchronize()
        return runner.mode


def separate(models, optimizers, steps, before_step):
    for t, x in enumerate(batches(steps)):
        for index, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            before_step(t, index, optimizer)
            optimizer.zero_grad()
            loss_of(model, x[index]).backward()
            optimizer.step()


def check(array, models):
    for index, model in enumerate(models):
        for mine, theirs in zip(array[index].parameters(), model.parameters(), strict=True):
            assert_near(mine, theirs)


@pytest.mark.parametrize("mode", ["by hand", "captured"])
@pytest.mark.parametrize("case", CHANGES)
def test_every_hyper_parameter_can_be_assigned_at_any_time(case, mode):
    arguments, changes = dict(CHANGES[case][0]), forms(CHANGES[case][1])
    name = arguments.pop("class", case)
    models = make_models(mlp, B, torch.float64)
    array = fuse(models)
    optimizer = getattr(optim, name)(array.parameters(), **arguments)

    def change(t):
        if t in changes:
            what, value = changes[t]
            optimizer.param_groups[0][what] = value

    def change_one(t, index, one):
        if t in changes:
            what, value = changes[t]
            one.param_groups[0][what] = own(value, index)

    captured = train(array, optimizer, MODES[mode], 14, change)
    assert captured in (None, "captured")
    alone = [getattr(torch.optim, name)(m.parameters(), **arguments) for m in models]
    separate(models, alone, 14, change_one)
    check(array, models)


@pytest.mark.parametrize("mode", ["eager", "two threads"])
def test_shards_see_what_is_assigned(mode):
    models = make_models(mlp, B, torch.float64)
    array = fuse(models)
    optimizer = optim.SGD(array.parameters(), lr=0.1)
    changes = {2: {"lr": [0.2, 0.1, 0.05]}, 5: {"momentum": [0.0, 0.9, 0.0]}, 6: {"momentum": 0.5, "nesterov": True}}
    train(array, optimizer, MODES[mode], 9, lambda t: optimizer.param_groups[0].update(changes.get(t, {})))

    def change_one(t, index, one):
        one.param_groups[0].update({n: own(v, index) for n, v in changes.get(t, {}).items()})

    separate(models, [torch.optim.SGD(m.parameters(), lr=0.1) for m in models], 9, change_one)
    check(array, models)


@pytest.mark.parametrize("mode", ["by hand", "captured"])
def test_momentum_that_pauses_goes_on_where_it_was(mode):
    models = make_models(mlp, B, torch.float64)
    array = fuse(models)
    optimizer = optim.SGD(array.parameters(), lr=0.1, dampening=0.5)
    changes = {2: [0.9, 0.0, 0.5], 4: 0.0, 6: [0.5, 0.9, 0.0], 8: 0.9}
    rates = {t: {"momentum": value} for t, value in changes.items()}
    train(array, optimizer, MODES[mode], 10, lambda t: optimizer.param_groups[0].update(rates.get(t, {})))

    def change_one(t, index, one):
        one.param_groups[0].update({n: own(v, index) for n, v in rates.get(t, {}).items()})

    separate(models, [torch.optim.SGD(m.parameters(), lr=0.1, dampening=0.5) for m in models], 10, change_one)
    check(array, models)


@pytest.mark.parametrize("mode", ["captured", "two threads"])
def test_a_step_keeps_the_values_of_its_call(mode):
    """In place: what is written after `step` is for the next one, though this one may be under way."""
    models = make_models(mlp, B, torch.float64)
    array = fuse(models)
    optimizer = optim.Adam(array.parameters(), lr=0.1)
    with StepRunner(array, optimizer, loss_of, **MODES[mode]) as runner:
        for x in batches(12):
            runner.step(x)
            optimizer.param_groups[0]["lr"].mul_(0.7)
            optimizer.param_groups[0]["lr"].data[1] *= 0.9

    def change_one(t, index, one):
        one.param_groups[0]["lr"] = 0.1 * (0.7 * (0.9 if index == 1 else 1)) ** t

    separate(models, [torch.optim.Adam(m.parameters(), lr=0.1) for m in models], 12, change_one)
    check(array, models)


@pytest.mark.parametrize("mode", ["by hand", "captured", "two threads"])
def test_a_limit_of_the_norm_can_be_assigned_changed_and_taken_away(mode):
    models = make_models(mlp, B, torch.float64)
    array = fuse(models)
    parameters = list(array.parameters())
    optimizer = optim.SGD([{"params": parameters[:2]}, {"params": parameters[2:]}], lr=0.5)
    limits = {3: 0.01, 5: [0.02, 0.5, 0.001], 8: None}

    def change(t):
        for group in optimizer.param_groups if t in limits else ():
            group["max_grad_norm"] = limits[t]

    train(array, optimizer, MODES[mode], 10, change)
    limit = None
    for t, x in enumerate(batches(10)):
        limit = limits.get(t, limit)
        for index, model in enumerate(models):
            model.zero_grad()
            loss_of(model, x[index]).backward()
            if limit is not None:
                torch.nn.utils.clip_grad_norm_(model.parameters(), own(limit, index))
            with torch.no_grad():
                for p in model.parameters():
                    p.sub_(p.grad, alpha=0.5)
    check(array, models)


@pytest.mark.parametrize("mode", ["by hand", "captured", "two threads"])
def test_a_group_can_be_added_at_any_time(mode):
    models = make_models(mlp, B, torch.float64)
    array = fuse(models)
    parameters = list(array.parameters())
    optimizer = optim.Adam(parameters[:2], lr=0.1)

    def change(t):
        if t == 5:
            optimizer.add_param_group({"params": parameters[2:], "lr": [0.1, 0.2, 0.3], "betas": (0.8, 0.99)})

    def change_one(t, index, one):
        if t == 5:
            late = list(models[index].parameters())[2:]
            one.add_param_group({"params": late, "lr": [0.1, 0.2, 0.3][index], "betas": (0.8, 0.99)})

    train(array, optimizer, MODES[mode], 10, change)
    separate(models, [torch.optim.Adam(list(m.parameters())[:2], lr=0.1) for m in models], 10, change_one)
    check(array, models)


@pytest.mark.parametrize("mode", ["by hand", "captured", "two threads"])
def test_the_state_can_be_read_and_written(mode):
    models = make_models(mlp, B, torch.float64)
    array = fuse(models)
    optimizer = optim.Adam(array.parameters(), lr=0.1)

    def change(t):
        if t == 4:
            for p in array.parameters():
                optimizer.state[p]["exp_avg"] = 2 * optimizer.state[p]["exp_avg"].float()
                optimizer.state[p]["step"] = 2
                optimizer.state[p]["exp_avg_sq"].mul_(3)
                optimizer.state[p]["note"] = "of the user's"
        elif t == 7:
            optimizer.state.clear()

    def change_one(t, index, one):
        if t == 4:
            for p in models[index].parameters():
                one.state[p]["exp_avg"] = 2 * one.state[p]["exp_avg"].float().double()
                one.state[p]["step"] = torch.tensor(2.0)
                one.state[p]["exp_avg_sq"].mul_(3)
        elif t == 7:
            one.state.clear()

    train(array, optimizer, MODES[mode], 10, change, settle=True)
    separate(models, [torch.optim.Adam(m.parameters(), lr=0.1) for m in models], 10, change_one)
    check(array, models)
    for p in array.parameters():
        assert optimizer.state[p]["step"].tolist() == [3] * B


def changed_group():
    """An array after two steps with a group whose values were changed, and its optimizer."""
    array = fuse(make_models(mlp, B, torch.float64))
    optimizer = optim.SGD(array.parameters(), lr=0.1)
    train(array, optimizer, None, 2, lambda t: None)
    optimizer.param_groups[0].update({"momentum": 0.9, "nesterov": True, "max_grad_norm": 2.0, "lr": [1, 2, 3]})
    optimizer.param_groups[0]["name"] = "all"
    train(array, optimizer, None, 2, lambda t: None)
    return array, optimizer


def values(optimizer):
    group = optimizer.param_groups[0]
    return [group["lr"].tolist(), group["momentum"].tolist(), group["nesterov"], group["max_grad_norm"].tolist()]


def test_changed_groups_are_saved_and_copied():
    array, optimizer = changed_group()
    loaded = optim.SGD(fuse(make_models(mlp, B, torch.float64)).parameters())
    loaded.load_state_dict(optimizer.state_dict())
    both, pickled = copy.deepcopy((array, optimizer)), pickle.loads(pickle.dumps((array, optimizer)))
    for one in (loaded, both[1], pickled[1]):
        assert values(one) == values(optimizer)
        one.param_groups[0]["lr"] = 0.5
        assert one.param_groups[0]["lr"].tolist() == [0.5] * B
        with pytest.raises(InvalidArgument):
            one.param_groups[0]["lr"] = "x"
    for copied, stepper in (both, pickled):
        stepper.param_groups[0]["lr"] = optimizer.param_groups[0]["lr"]
        for x in batches(2):
            stepper.zero_grad()
            loss_of(copied, x).sum().backward()
            stepper.step()
    train(array, optimizer, None, 2, lambda t: None)
    for copied, _ in (both, pickled):
        assert all(map(torch.equal, copied.parameters(), array.parameters()))


def test_changed_groups_follow_an_edit():
    array, optimizer = changed_group()
    array.drop([1], optimizer)
    assert values(optimizer)[0] == [1, 3]
    optimizer.param_groups[0]["lr"] = [4, 5]
    array.append(mlp().double(), optimizer, lr=6)
    assert values(optimizer)[0] == [4, 5, 6]
    assert optimizer.param_groups[0]["name"] == "all"


def test_groups_put_in_the_list_by_hand_are_groups_as_others():
    models = make_models(mlp, B, torch.float64)
    array = fuse(models)
    optimizer = optim.SGD(array.parameters(), lr=0.1)
    optimizer.param_groups[0] = {**optimizer.param_groups[0], "lr": 0.3}
    train(array, optimizer, MODES["captured"], 4, lambda t: None)
    separate(models, [torch.optim.SGD(m.parameters(), lr=0.3) for m in models], 4, lambda *_: None)
    check(array, models)


def test_a_state_of_another_dtype_says_how_it_is_converted():
    array = nn.Linear(4, 3, B=2).double()
    optimizer = optim.SGD(array.parameters(), lr=0.1, momentum=0.9)
    array(torch.ones(2, 5, 4, dtype=torch.float64)).sum().backward()
    optimizer.step()
    array.float()
    with pytest.raises(InvalidArgument, match=r"load_state_dict.* converts"):
        optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.step()
    assert {row["momentum_buffer"].dtype for row in optimizer.state.values()} == {torch.float32}
