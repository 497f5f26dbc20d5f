# SPDX-License-Identifier: MIT
"""Every optimizer against B separate ones of torch, hyper-parameters differing between the models."""

import io

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from array_parameters import array_parameters
from dnnsuite import fuse, optim, unfuse
from dnnsuite.errors import InvalidArgument
from helpers import assert_near, make_models

LR = [0.1, 0.01, 0.5]
BETAS = ([0.9, 0.5, 0.99], [0.999, 0.9, 0.99])
DECAY = [0, 0.1, 0.5]
CASES = {
    "adadelta": (
        optim.Adadelta,
        {"lr": LR, "rho": [0.9, 0.5, 0.99], "eps": [1e-6, 1e-3, 1e-6], "weight_decay": [0, 0.1, 0]},
    ),
    "adadelta, shared": (optim.Adadelta, {}),
    "adagrad": (optim.Adagrad, {"lr": LR, "lr_decay": [0, 0.1, 0.5], "initial_accumulator_value": DECAY}),
    "adagrad, decay": (optim.Adagrad, {"weight_decay": DECAY, "eps": [1e-10, 1e-3, 1e-5], "maximize": True}),
    "adam": (optim.Adam, {"lr": LR, "betas": BETAS, "weight_decay": [0, 0.1, 0]}),
    "adam, amsgrad": (optim.Adam, {"lr": LR, "amsgrad": True}),
    "adam, decoupled, maximize": (
        optim.Adam,
        {"weight_decay": DECAY, "decoupled_weight_decay": True, "maximize": True},
    ),
    "adamax": (optim.Adamax, {"lr": LR, "betas": BETAS, "weight_decay": DECAY}),
    "adamw": (optim.AdamW, {"lr": LR, "weight_decay": [0, 0.1, 0.5]}),
    "adamw, amsgrad": (optim.AdamW, {"lr": LR, "amsgrad": True}),
    "asgd": (
        optim.ASGD,
        {"lr": [0.01, 0.02, 0.001], "lambd": [1e-4, 0.1, 0.01], "alpha": [0.75, 0.5, 1], "t0": [2, 1, 1e6]},
    ),
    "asgd, decay": (optim.ASGD, {"weight_decay": DECAY, "maximize": False}),
    "nadam": (optim.NAdam, {"lr": LR, "betas": BETAS, "momentum_decay": [0.004, 0.1, 0], "weight_decay": DECAY}),
    "nadam, decoupled": (optim.NAdam, {"weight_decay": DECAY, "decoupled_weight_decay": True}),
    "radam": (
        optim.RAdam,
        {"lr": [0.1, 0.01, 0.05], "betas": ([0.9, 0.5, 0.99], [0.999, 0.5, 0.7]), "weight_decay": DECAY},
    ),
    "radam, decoupled": (optim.RAdam, {"weight_decay": DECAY, "decoupled_weight_decay": True}),
    "rmsprop": (
        optim.RMSprop,
        {"lr": [0.1, 0.01, 0.05], "eps": 1e-4, "alpha": [0.99, 0.5, 0.9], "weight_decay": DECAY},
    ),
    "rmsprop, momentum": (optim.RMSprop, {"momentum": [0.9, 0.0, 0.5], "eps": [1e-8, 1e-3, 1e-5]}),
    "rmsprop, centered": (optim.RMSprop, {"lr": [0.01, 0.001, 0.02], "centered": True}),
    "rmsprop, both": (optim.RMSprop, {"momentum": [0.9, 0.0, 0.5], "centered": True, "maximize": True}),
    "rprop": (
        optim.Rprop,
        {"lr": [0.01, 0.1, 0.001], "etas": ([0.5, 0.3, 0.6], 1.2), "step_sizes": (1e-6, [50, 0.1, 1])},
    ),
    "sgd": (optim.SGD, {"lr": LR, "weight_decay": [0, 0.1, 0.2]}),
    "sgd, maximize": (optim.SGD, {"maximize": True, "lr": [0.01, 0.001, 0.02]}),
    "sgd, momentum": (optim.SGD, {"lr": LR, "momentum": [0.9, 0.0, 0.5], "dampening": [0.5, 0.3, 0.0]}),
    "sgd, nesterov": (optim.SGD, {"lr": [0.1, 0.01, 0.05], "momentum": [0.9, 0.1, 0.5], "nesterov": True}),
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
    torch.set_default_dtype(dtype)  # torch keeps the scalars of ASGD and NAdam in it
    kind, arguments = CASES[case]
    models = make_models(mlp, 3, dtype, device)
    array = fuse(models)
    x = torch.randn(3, 5, 6, dtype=dtype, device=device) / 4  # so that none diverges, and rounding with it
    train(array, kind(array.parameters(), **arguments), x, 6)
    for index, (model, back) in enumerate(zip(models, unfuse(array), strict=True)):
        train(model, kind.torch_class(model.parameters(), **arguments_of(arguments, index)), x[index], 6)
        for (name, expected), actual in zip(model.named_parameters(), back.parameters(), strict=True):
            assert_near(actual, expected, f"{name} of model {index}")


class OfComplex(torch.nn.Module):
    """A model with complex numbers, and frozen ones of other kinds."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(6, 4)
        self.turn = torch.nn.Parameter(0.2 * torch.randn(4, 3, dtype=torch.cdouble))
        self.order = torch.nn.Parameter(torch.tensor([2, 0, 1]), requires_grad=False)
        self.mask = torch.nn.Parameter(torch.tensor([True, False, True]), requires_grad=False)

    def forward(self, x):
        turned = (self.inner(x) + 0j) @ self.turn
        return (turned.real + 0.5 * turned.imag)[:, self.order] * (1 + self.mask)


def models_of_complex():
    torch.set_default_dtype(torch.float64)
    models = []
    for seed in range(3):
        torch.manual_seed(seed)
        models.append(OfComplex())
    return models


@pytest.mark.parametrize("case", CASES)
def test_complex_parameters_and_frozen_ones_of_other_kinds(case):
    kind, arguments = CASES[case]
    models = models_of_complex()
    array, x = fuse(models), 0.2 * torch.randn(3, 5, 6)
    optimizer = kind(array.parameters(), **arguments)
    train(array, optimizer, x, 3)
    for index, (model, back) in enumerate(zip(models, unfuse(array), strict=True)):
        train(back, optimizer.to_model(index, back.parameters()), x[index], 3)
        train(model, kind.torch_class(model.parameters(), **arguments_of(arguments, index)), x[index], 6)
        for (name, expected), actual in zip(model.named_parameters(), back.parameters(), strict=True):
            torch.testing.assert_close(actual, expected, msg=f"{name} of model {index}")


def test_complex_gradients_are_clipped_as_by_torch():
    models = models_of_complex()
    array, x = fuse(models), torch.randn(3, 5, 6)
    limits = [0.5, 2.0, 1e9]
    train(array, optim.SGD(array.parameters(), lr=0.1, max_grad_norm=limits), x, 2)
    for model, back, batch, limit in zip(models, unfuse(array), x, limits, strict=True):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            model(batch).square().sum().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
            optimizer.step()
        for expected, actual in zip(model.parameters(), back.parameters(), strict=True):
            torch.testing.assert_close(actual, expected)


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
    weight, bias, *_ = array.parameters()
    weight.requires_grad_(False)
    before = weight.clone()
    optimizer = optim.Adam(array.parameters())
    train(array, optimizer, torch.randn(2, 5, 6), 2)
    assert torch.equal(weight, before)
    weight.requires_grad_(True)  # as in torch it counts its own steps
    train(array, optimizer, torch.randn(2, 5, 6), 1)
    assert optimizer.state[weight]["step"].tolist() == [1.0, 1.0]
    assert optimizer.state[bias]["step"].tolist() == [3.0, 3.0]


def test_groups_have_their_own_values():
    array = fuse(make_models(mlp, 2))
    before = [p.detach().clone() for p in array.parameters()]
    params = list(array.parameters())
    groups = [{"params": params[:2], "lr": [0.0, 1.0]}, {"params": params[2:]}]
    train(array, optim.SGD(groups, lr=[1.0, 0.0]), torch.randn(2, 5, 6), 1)
    for old, new, moved in zip(before, array.parameters(), (1, 1, 0, 0), strict=True):
        assert torch.equal(old[1 - moved], new[1 - moved])
        assert not torch.equal(old[moved], new[moved])


def test_closure_is_called_with_gradients_on():
    (parameter,) = array_parameters(torch.ones(2, 3))
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
        optim.Adam(array_parameters(torch.ones(2, 3)), **arguments)


def test_refuses_parameters_of_different_arrays_and_sparse_gradients():
    (parameter,) = array_parameters(torch.ones(2, 3))
    with pytest.raises(InvalidArgument, match="same B"):
        optim.SGD([parameter, torch.nn.Parameter(torch.ones(3, 3))])
    with pytest.raises(InvalidArgument, match="scalar"):
        optim.SGD([torch.nn.Parameter(torch.tensor(1.0))])
    with pytest.raises(InvalidArgument, match="nesterov"):
        optim.SGD([parameter], momentum=[0.9, 0.0], nesterov=True)
    parameter.grad = torch.ones(2, 3).to_sparse()
    with pytest.raises(InvalidArgument, match="dense"):
        optim.SGD([parameter]).step()


def single(B=3, shape=(4,), **options):
    (parameter,) = array_parameters(torch.ones(B, *shape))
    parameter.grad = torch.ones(B, *shape)
    return parameter, optim.Adam([parameter], lr=0.1, **options)


def test_frozen_models_keep_every_bit():
    parameter, optimizer = single()
    optimizer.step()
    before = [parameter.detach().clone(), *(v.clone() for v in optimizer.state[parameter].values())]
    optimizer.freeze([0, -1])
    assert optimizer.frozen == [0, 2]
    optimizer.step()
    now = [parameter.detach(), *optimizer.state[parameter].values()]
    for old, new in zip(before, now, strict=True):
        assert torch.equal(old[[0, 2]], new[[0, 2]])
        assert not torch.equal(old[1], new[1])
    optimizer.unfreeze(0)
    optimizer.step()
    assert optimizer.state[parameter]["step"].tolist() == [2.0, 3.0, 1.0]
    with pytest.raises(InvalidArgument, match="no model 3 among 3"):
        optimizer.freeze(3)


@pytest.mark.parametrize("policy", ["ignore", "skip", "freeze"])
def test_a_model_with_nan_reaches_no_other(policy):
    parameter, optimizer = single(on_nan=policy)
    other, reference = single()
    for bad in (False, True, False):
        parameter.grad.fill_(1.0)
        if bad:
            parameter.grad[1, 2] = torch.nan
        optimizer.step()
        reference.step()
    assert torch.equal(parameter[[0, 2]], other[[0, 2]])
    steps = optimizer.state[parameter]["step"].tolist()
    if policy == "ignore":
        assert parameter[1].isnan().any()
        assert steps == [3, 3, 3]
    else:
        assert parameter[1].isfinite().all()
        assert steps == [3, 2 if policy == "skip" else 1, 3]
        assert optimizer.skipped.tolist() == [0, 1, 0]
        assert optimizer.frozen == ([1] if policy == "freeze" else [])


def test_a_nan_in_one_group_stops_the_model_in_all():
    first, second = array_parameters(torch.ones(2, 3), torch.ones(2, 3))
    optimizer = optim.SGD([{"params": [first]}, {"params": [second]}], lr=1.0, on_nan="skip")
    first.grad, second.grad = torch.ones(2, 3), torch.ones(2, 3)
    second.grad[0, 0] = torch.inf
    optimizer.step()
    assert torch.equal(first, torch.tensor([[1.0] * 3, [0.0] * 3]))


def test_max_grad_norm_is_clip_grad_norm():
    models = make_models(mlp, 3)
    array, other = fuse(models), fuse(models)
    limits = [0.1, 1e9, 2.0]
    optimizer, plain = (
        optim.Adam(a.parameters(), eps=1e-3, **o) for a, o in ((array, {"max_grad_norm": limits}), (other, {}))
    )
    for x in torch.randn(3, 3, 5, 6):
        for a in (array, other):
            a.zero_grad()
            a(x).square().sum().backward()
        norms = optim.clip_grad_norm_(other.parameters(), limits)
        optimizer.step()
        plain.step()
        torch.testing.assert_close(optimizer.grad_norms.float(), norms)
    for a, b in zip(array.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_memory_orders_and_dtypes_may_differ():
    models = make_models(mlp, 2)
    x = torch.randn(2, 5, 6)
    array, other = fuse(models), fuse(models)
    weight = next(array.parameters())
    weight.data = weight.data.transpose(1, 2).contiguous().transpose(1, 2)
    train(array, optim.Adam(array.parameters(), lr=0.1), x, 3)
    train(other, optim.Adam(other.parameters(), lr=0.1), x, 3)
    for a, b in zip(array.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    kinds = array_parameters(*(torch.ones(2, 3, dtype=d) for d in (torch.bfloat16, torch.float32, torch.float64)))
    for p in kinds:
        p.grad = torch.full_like(p, 0.5)
    optim.SGD(kinds, lr=1.0, momentum=0.9).step()
    assert all(torch.equal(p, torch.full_like(p, 0.5)) for p in kinds)


def test_a_step_is_seen_by_a_later_backward():
    parameter, optimizer = single()
    output = parameter.square().sum()
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.backward()


def test_a_parameter_may_move():
    parameter, optimizer = single()
    optimizer.step()
    old = parameter.data
    parameter.data = old.clone()
    optimizer.step()
    assert not torch.equal(parameter, old)


def test_lion_is_its_formula():
    (parameter,) = array_parameters(torch.randn(2, 5, dtype=torch.float64))
    optimizer = optim.Lion([parameter], lr=[0.1, 0.01], betas=(0.9, [0.99, 0.5]), weight_decay=[0.0, 0.1])
    w, m = parameter.detach().clone(), torch.zeros(2, 5, dtype=torch.float64)
    lr, beta2, decay = (torch.tensor(v, dtype=torch.float64).view(2, 1) for v in ([0.1, 0.01], [0.99, 0.5], [0.0, 0.1]))
    for _ in range(4):
        parameter.grad = torch.randn(2, 5, dtype=torch.float64)
        w = w * (1 - lr * decay) - lr * (0.9 * m + 0.1 * parameter.grad).sign()
        m = beta2 * m + (1 - beta2) * parameter.grad
        optimizer.step()
    torch.testing.assert_close(parameter.detach(), w)
    with pytest.raises(InvalidArgument, match="torch has no Lion"):
        optimizer.to_model(0, [parameter])


def test_b_of_zero_is_torchs_own():
    parameter = torch.nn.Parameter(torch.ones(3))
    assert type(optim.AdamW([parameter], lr=0.1, B=0)) is torch.optim.AdamW
    with pytest.raises(InvalidArgument, match="B=2, but the parameters are those of 3 models"):
        optim.SGD([parameter], B=2)
    with pytest.raises(InvalidArgument, match="torch has no Lion"):
        optim.Lion([parameter], B=0)


@given(
    st.sampled_from(sorted(CASES)),
    st.integers(1, 4),
    st.lists(st.lists(st.integers(1, 40), max_size=2), min_size=1, max_size=3),
    st.integers(0, 2**31),
)
@settings(max_examples=15)
def test_any_array_is_its_separate_optimizers(case, B, shapes, seed):
    """Random shapes, gradients and numbers of models, in float64, where rounding cannot hide an error."""
    kind, arguments = CASES[case]
    kwargs = {name: first_of(value, B) for name, value in arguments.items()}
    torch.set_default_dtype(torch.float64)  # torch keeps the scalars of ASGD and NAdam in it
    torch.manual_seed(seed)
    params = array_parameters(*(torch.randn(B, *shape, dtype=torch.float64) for shape in shapes))
    alone = [[torch.nn.Parameter(p[b].detach().clone()) for p in params] for b in range(B)]
    optimizer = kind(params, **kwargs)
    others = [kind.torch_class(own, **arguments_of(kwargs, b)) for b, own in enumerate(alone)]
    for _ in range(4):
        for place, p in enumerate(params):
            p.grad = torch.randn_like(p)
            for b in range(B):
                alone[b][place].grad = p.grad[b].clone()
        for one in (optimizer, *others):
            one.step()
    for place, p in enumerate(params):
        for b in range(B):
            torch.testing.assert_close(p[b], alone[b][place], rtol=1e-9, atol=1e-10)


def first_of(value, B):
    """Arguments of three models for B of them."""
    if isinstance(value, tuple):
        return tuple(first_of(v, B) for v in value)
    return [value[b % 3] for b in range(B)] if isinstance(value, list) else value


@pytest.mark.parametrize("case", CASES)
def test_bits_depend_on_neither_b_nor_the_slot(case):
    kind, arguments = CASES[case]
    params = array_parameters(*(torch.randn(3, *shape) for shape in ((5, 7), (33,), ())))
    alone = array_parameters(*(p[2:3].detach().clone() for p in params))
    optimizer = kind(params, **arguments)
    own = kind(alone, **arguments_of(arguments, 2))
    for _ in range(4):
        for p, q in zip(params, alone, strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad[2:3].clone()
        optimizer.step()
        own.step()
    for p, q in zip(params, alone, strict=True):
        assert torch.equal(p[2], q[0])


def test_refuses_what_it_cannot_do():
    (parameter,) = array_parameters(torch.ones(2, 3))
    with pytest.raises(InvalidArgument, match="not differentiable"):
        optim.SGD([parameter], differentiable=True)
    with pytest.raises(TypeError, match="no argument 'lrr'"):
        optim.SGD([parameter], lrr=1)
    with pytest.raises(InvalidArgument, match="on_nan is 'explode'"):
        optim.SGD([parameter], on_nan="explode")
    with pytest.raises(InvalidArgument, match="betas must be two values"):
        optim.Adam([parameter], betas=0.9)
    assert type(optim.Adam([parameter], fused=True, foreach=False)) is optim.Adam
