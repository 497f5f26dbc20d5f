# SPDX-License-Identifier: MIT
"""Optimizers to and from torch's, and after the array was changed."""

import copy
import io

import pytest
import torch

from array_parameters import array_parameters
from dnnsuite import nn, optim
from dnnsuite.errors import InvalidArgument

KINDS = ["SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adadelta", "Adagrad", "RMSprop", "ASGD", "Rprop"]
SHAPES = ((3, 5), (7,), ())


def options(kind):
    return {"momentum": 0.9} if kind in ("SGD", "RMSprop") else {}


def parameters(B):
    return array_parameters(*(torch.randn(B, *shape) for shape in SHAPES))


def train(optimizer, params, grads):
    for given in grads:
        for p, g in zip(params, given, strict=True):
            p.grad = g.clone()
        optimizer.step()


def gradients(B, steps):
    return [[torch.randn(B, *shape) for shape in SHAPES] for _ in range(steps)]


def of(grads, indices):
    return [[g[indices] for g in given] for given in grads]


@pytest.mark.parametrize("kind", KINDS)
def test_from_torch_and_back(kind):
    """Three optimizers of torch, two steps alone, two in one, two alone: as if they had always been alone."""
    own = [[p[0] for p in parameters(1)] for _ in range(3)]
    own = [[torch.nn.Parameter(p.detach().clone()) for p in params] for params in own]
    reference = [[torch.nn.Parameter(p.detach().clone()) for p in params] for params in own]
    make = getattr(torch.optim, kind)
    rates = [0.1, 0.01, 0.02]
    alone, expected = (
        [make(params, lr=lr, **options(kind)) for params, lr in zip(sets, rates, strict=True)]
        for sets in (own, reference)
    )
    grads = gradients(3, 6)
    for index in range(3):
        train(expected[index], reference[index], of(grads, index))
        train(alone[index], own[index], of(grads[:2], index))
    params = array_parameters(*(torch.stack([p.detach() for p in each]) for each in zip(*own, strict=True)))
    array = optim.ArrayOptimizer.from_models(alone, params)
    assert type(array) is getattr(optim, kind)
    train(array, params, grads[2:4])
    for index in range(3):
        last = [torch.nn.Parameter(p[index].detach().clone()) for p in params]
        train(array.to_model(index, last), last, of(grads[4:], index))
        for a, b in zip(last, reference[index], strict=True):
            torch.testing.assert_close(a, b, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [*KINDS, "Lion"])
def test_select_moves_clones_and_adds(kind):
    params, grads = parameters(3), gradients(3, 4)
    optimizer = getattr(optim, kind)(params, lr=[0.1, 0.01, 0.02], **options(kind))
    train(optimizer, params, grads[:2])
    indices = [2, None, 0, 2]
    fresh = {name: float(optimizer.param_groups[0][name][1]) for name in optimizer.per_model}
    reference = copy.deepcopy(optimizer)
    before = [p.detach().clone() for p in params]
    for p, old in zip(params, before, strict=True):
        p.data = old[[2, 1, 0, 2]]
    optimizer.select(indices, **fresh)
    assert optimizer.B == 4
    train(optimizer, params, of(grads[2:], [2, 1, 0, 2]))
    same = [p for group in reference.param_groups for p in group["params"]]
    train(reference, same, grads[2:])
    new = array_parameters(*(p[1:2].clone() for p in before))
    other = getattr(optim, kind)(new, lr=0.01, **options(kind))
    train(other, new, of(grads[2:], slice(1, 2)))
    for p, q, r in zip(params, same, new, strict=True):
        assert torch.equal(p[[0, 2, 3]], q[[2, 0, 2]])
        assert torch.equal(p[1], r[0])


def test_select_keeps_who_is_frozen_and_says_what_is_missing():
    params = parameters(3)
    optimizer = optim.SGD(params, lr=[0.1, 0.2, 0.3], max_grad_norm=1.0)
    optimizer.freeze(1)
    with pytest.raises(InvalidArgument, match="2 indices, but a parameter has shape"):
        optimizer.select([1, 0])
    for p in params:
        p.data = p.data[[1, 0]]
    with pytest.raises(InvalidArgument, match="value of lr, which differs"):
        optimizer.select([1, None])
    with pytest.raises(InvalidArgument, match="no hyper-parameter beta"):
        optimizer.select([1, 0], beta=0.1)
    assert optimizer.B == 3
    assert optimizer.param_groups[0]["lr"].tolist() == [0.1, 0.2, 0.3]
    optimizer.select([1, None], lr=0.5, max_grad_norm=2.0)
    assert optimizer.frozen == [0]
    assert optimizer.param_groups[0]["lr"].tolist() == [0.2, 0.5]
    assert optimizer.param_groups[0]["momentum"].tolist() == [0.0, 0.0]
    assert optimizer.param_groups[0]["max_grad_norm"].tolist() == [1.0, 2.0]


@pytest.mark.parametrize("kind", [*KINDS, "Lion"])
def test_a_safe_file_and_a_copy_go_on_alike(kind):
    params, grads = parameters(2), gradients(2, 4)
    optimizer = getattr(optim, kind)(params, lr=[0.1, 0.01], **options(kind))
    train(optimizer, params, grads[:2])
    optimizer.freeze(1)
    twin = copy.deepcopy(optimizer)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    others = array_parameters(*(p.detach().clone() for p in params))
    loaded = getattr(optim, kind)(others)
    loaded.load_state_dict(torch.load(file, weights_only=True))
    assert loaded.frozen == twin.frozen == [1]
    sets = [params, [p for g in twin.param_groups for p in g["params"]], others]
    for one, own in zip((optimizer, twin, loaded), sets, strict=True):
        one.unfreeze(1)
        train(one, own, grads[2:])
    for a, b, c in zip(*sets, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)


def test_a_loaded_state_is_a_copy():
    params, others = parameters(2), parameters(2)
    optimizer, other = optim.Adam(params), optim.Adam(others)
    train(optimizer, params, gradients(2, 1))
    other.load_state_dict(optimizer.state_dict())
    train(other, others, gradients(2, 1))
    assert optimizer.state[params[0]]["step"].tolist() == [1.0, 1.0]
    with pytest.raises(InvalidArgument, match="state is that of 2 models"):
        optim.Adam(parameters(3)).load_state_dict(optimizer.state_dict())


def test_refuses_optimizers_that_differ():
    def make(kind=torch.optim.SGD, count=2, **arguments):
        return kind([torch.nn.Parameter(torch.ones(3)) for _ in range(count)], **arguments)

    params = array_parameters(torch.ones(2, 3), torch.ones(2, 3))
    build = optim.ArrayOptimizer.from_models
    with pytest.raises(InvalidArgument, match="no optimizer to start from"):
        build([], params)
    with pytest.raises(InvalidArgument, match="optimizers are Adam, SGD"):
        build([make(), make(torch.optim.Adam)], params)
    with pytest.raises(InvalidArgument, match="optimizers are Adam; SGD is made from"):
        optim.SGD.from_models([make(torch.optim.Adam)] * 2, params)
    with pytest.raises(InvalidArgument, match="nesterov differs"):
        build([make(momentum=0.9), make(momentum=0.9, nesterov=True)], params)
    with pytest.raises(InvalidArgument, match="different numbers of parameters"):
        build([make(), make(count=3)], params)
    with pytest.raises(InvalidArgument, match="have 3 parameters, the array 2"):
        build([make(count=3)] * 2, params)
    with pytest.raises(InvalidArgument, match="3 optimizers for an array of 2"):
        build([make()] * 3, params)
    with pytest.raises(InvalidArgument, match="has 2 parameters, the model 1"):
        optim.SGD(params).to_model(0, params[:1])


def test_keywords_of_ours_come_along():
    params = array_parameters(torch.ones(1, 3))
    array = optim.Adam.from_models([torch.optim.Adam([torch.nn.Parameter(torch.ones(3))])], params, on_nan="skip")
    assert array.on_nan == "skip"


@pytest.fixture
def parameters_stay_when_moved():
    """To "meta", too, where torch else puts new parameters into the modules, and not as on a GPU into the same."""
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    yield
    torch.__future__.set_swap_module_params_on_conversion(before)


@pytest.mark.usefixtures("parameters_stay_when_moved")
def test_vectors_and_states_follow_parameters_to_another_device():
    array = nn.Linear(3, 2, B=2)
    groups = [{"params": [parameter]} for parameter in array.parameters()]
    optimizer = optim.Adam(groups, lr=[0.1, 0.2], max_grad_norm=1.0, on_nan="skip")
    array(torch.randn(2, 4, 3)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    array.to("meta")
    optimizer.step()
    held = [value for group in optimizer.param_groups for value in group.values()]
    held += [value for state in optimizer.state.values() for value in state.values()]
    tensors = [value for value in held if isinstance(value, torch.Tensor)]
    assert len(tensors) > 20
    assert {value.device.type for value in tensors} == {"meta"}
    assert len({id(group["active"]) for group in optimizer.param_groups}) == 1  # all groups share it


@pytest.mark.gpu
def test_an_array_that_goes_on_on_a_gpu_trains_as_one_that_stays():
    def trained(device):
        torch.manual_seed(0)
        array = nn.Linear(3, 2, B=2)
        optimizer = optim.Adam(array.parameters(), lr=[0.1, 0.2], max_grad_norm=1.0, on_nan="skip")
        for step in range(6):
            if step == 3:
                array.to(device)
            optimizer.zero_grad()
            x = torch.randn(2, 4, 3).to(array.weight.device)
            array(x).square().sum().backward()
            optimizer.step()
        return [parameter.detach().cpu() for parameter in array.parameters()]

    torch.testing.assert_close(trained("cuda"), trained("cpu"), rtol=1e-4, atol=1e-5)
