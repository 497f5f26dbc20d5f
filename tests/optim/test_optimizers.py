# SPDX-License-Identifier: MIT
"""Every optimizer against B separate ones of torch, hyper-parameters differing between the models."""

import io

import pytest
import torch

from dnnsuite import fuse, optim, unfuse
from dnnsuite.errors import InvalidArgument
from helpers import assert_near, make_models

LR = [0.1, 0.01, 0.5]
CASES = {
    "adadelta": (
        optim.Adadelta,
        {"lr": LR, "rho": [0.9, 0.5, 0.99], "eps": [1e-6, 1e-3, 1e-6], "weight_decay": [0, 0.1, 0]},
    ),
    "adadelta, shared": (optim.Adadelta, {}),
    "adam": (
        optim.Adam,
        {"lr": LR, "betas": ([0.9, 0.5, 0.99], [0.999, 0.9, 0.99]), "weight_decay": [0, 0.1, 0]},
    ),
    "adam, amsgrad": (optim.Adam, {"lr": LR, "amsgrad": True}),
    "adamw": (optim.AdamW, {"lr": LR, "weight_decay": [0, 0.1, 0.5]}),
    "adamw, amsgrad": (optim.AdamW, {"lr": LR, "amsgrad": True}),
    "sgd": (optim.SGD, {"lr": LR, "weight_decay": [0, 0.1, 0.2]}),
    "sgd, momentum": (optim.SGD, {"lr": LR, "momentum": [0.9, 0.0, 0.5], "dampening": [0.5, 0.3, 0.0]}),
    "sgd, nesterov": (optim.SGD, {"lr": LR, "momentum": [0.9, 0.1, 0.5], "nesterov": True}),
}


def arguments_of(arguments, index):
    """Model `index`'s own, as torch takes them."""

    def pick(value):
        if isinstance(value, tuple):
            return tuple(pick(v) for v in value)
        return value[index] if isinstance(value, list) else value

    return {name: pick(value) for name, value in arguments.items()}


def mlp():
    return torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.Tanh(), torch.nn.Linear(9, 2))


def train(model, optimizer, x, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES)
def test_matches_separate_optimizers(case, dtype, device):
    kind, arguments = CASES[case]
    models = make_models(mlp, 3, dtype, device)
    array = fuse(models)
    x = torch.randn(3, 5, 6, dtype=dtype, device=device)
    train(array, kind(array.parameters(), **arguments), x, 6)
    for index, (model, back) in enumerate(zip(models, unfuse(array), strict=True)):
        train(model, kind.torch_class(model.parameters(), **arguments_of(arguments, index)), x[index], 6)
        for (name, expected), actual in zip(model.named_parameters(), back.parameters(), strict=True):
            assert_near(actual, expected, f"{name} of model {index}")


@pytest.mark.parametrize("case", CASES)
def test_a_model_goes_on_alone(case):
    """Unfused with its optimizer after three steps, a model trains on as if it had always been alone."""
    kind, arguments = CASES[case]
    models = make_models(mlp, 3)
    array = fuse(models)
    optimizer = kind(array.parameters(), **arguments)
    x = torch.randn(3, 5, 6)
    train(array, optimizer, x, 3)
    for index, (model, back) in enumerate(zip(models, unfuse(array), strict=True)):
        train(back, optimizer.to_model(index, back.parameters()), x[index], 3)
        train(model, kind.torch_class(model.parameters(), **arguments_of(arguments, index)), x[index], 6)
        for expected, actual in zip(model.parameters(), back.parameters(), strict=True):
            assert_near(actual, expected)


@pytest.mark.parametrize("case", CASES)
def test_state_survives_a_safe_file(case):
    kind, arguments = CASES[case]
    x = torch.randn(3, 5, 6)
    models = make_models(mlp, 3)
    whole, halves = fuse(models), fuse(models)
    train(whole, kind(whole.parameters(), **arguments), x, 5)
    first = kind(halves.parameters(), **arguments)
    train(halves, first, x, 2)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = kind(halves.parameters())
    second.load_state_dict(torch.load(file, weights_only=True))
    train(halves, second, x, 3)
    for a, b in zip(whole.parameters(), halves.parameters(), strict=True):
        assert torch.equal(a, b)


def test_parameters_without_gradient_are_left_alone():
    array = fuse(make_models(mlp, 2))
    array[0].weight.requires_grad_(False)
    before = array[0].weight.clone()
    train(array, optim.Adam(array.parameters()), torch.randn(2, 5, 6), 2)
    assert torch.equal(array[0].weight, before)


def test_groups_have_their_own_values():
    array = fuse(make_models(mlp, 2))
    before = [p.detach().clone() for p in array.parameters()]
    groups = [{"params": array[0].parameters(), "lr": [0.0, 1.0]}, {"params": array[2].parameters()}]
    train(array, optim.SGD(groups, lr=[1.0, 0.0]), torch.randn(2, 5, 6), 1)
    for old, new, moved in zip(before, array.parameters(), (1, 1, 0, 0), strict=True):
        assert torch.equal(old[1 - moved], new[1 - moved])
        assert not torch.equal(old[moved], new[moved])


def test_closure_is_called_with_gradients_on():
    parameter = torch.nn.Parameter(torch.ones(2, 3))
    optimizer = optim.SGD([parameter], lr=1.0)

    def closure():
        optimizer.zero_grad()
        losses = parameter.square().sum(1)
        losses.sum().backward()
        return losses

    assert torch.equal(optimizer.step(closure), torch.tensor([3.0, 3.0]))
    assert torch.equal(parameter, torch.full((2, 3), -1.0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lr": [0.1]}, r"lr has shape \[1\] for 2 models"),
        ({"lr": [0.1, -0.1]}, "lr of model 1 is -0.1"),
        ({"lr": [0.1, float("nan")]}, "lr of model 1 is nan"),
        ({"betas": (0.9, [0.5, 1.0])}, "beta2 of model 1 is 1.0"),
    ],
)
def test_refuses_bad_values(arguments, message):
    with pytest.raises(InvalidArgument, match=message):
        optim.Adam([torch.nn.Parameter(torch.ones(2, 3))], **arguments)


def test_refuses_parameters_of_different_arrays_and_sparse_gradients():
    parameter = torch.nn.Parameter(torch.ones(2, 3))
    with pytest.raises(InvalidArgument, match="same B"):
        optim.SGD([parameter, torch.nn.Parameter(torch.ones(3, 3))])
    with pytest.raises(InvalidArgument, match="scalar"):
        optim.SGD([torch.nn.Parameter(torch.tensor(1.0))])
    with pytest.raises(InvalidArgument, match="nesterov"):
        optim.SGD([parameter], momentum=[0.9, 0.0], nesterov=True)
    parameter.grad = torch.ones(2, 3).to_sparse()
    with pytest.raises(InvalidArgument, match="dense"):
        optim.SGD([parameter]).step()
