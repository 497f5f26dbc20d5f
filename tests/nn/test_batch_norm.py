# SPDX-License-Identifier: MIT
import copy

import pytest
import torch

from dnnsuite import fuse, nn, unfuse
from dnnsuite.errors import InvalidArgument
from helpers import assert_near, check_matches_models, make_models


@pytest.mark.parametrize("momentum", [0.1, None])
def test_running_statistics_over_steps(momentum):
    """Three batches in training and one in evaluation, buffers included."""
    models = make_models(lambda: torch.nn.BatchNorm2d(5, momentum=momentum), 3)
    array = fuse(models)
    for step in range(3):
        x = torch.randn(3, 4, 5, 3, 2) * (step + 1)
        array(x)
        for model, own in zip(models, x, strict=True):
            model(own)
    for name, value in models[1].state_dict().items():
        torch.testing.assert_close(array.state_dict()[name][1], value)
    assert array.num_batches_tracked.tolist() == [3, 3, 3]
    check_matches_models([model.eval() for model in models], torch.randn(3, 2, 5, 3, 3))


@pytest.mark.parametrize(
    ("kind", "shape"), [("BatchNorm1d", (6, 4)), ("BatchNorm2d", (2, 4, 3, 3)), ("InstanceNorm1d", (2, 4, 5))]
)
def test_momentum_is_set_between_steps(kind, shape):
    models = make_models(lambda: getattr(torch.nn, kind)(4, track_running_stats=True), 2)
    array = fuse(models)
    for momentum in (0.9, [0.2, 0.3], torch.tensor([0.5, 0.25]), None):
        array.momentum = momentum
        x = torch.randn(2, *shape)
        array(x)
        each = [momentum] * 2 if momentum is None or isinstance(momentum, float) else list(map(float, momentum))
        for index, (model, own) in enumerate(zip(models, each, strict=True)):
            model.momentum = own
            model(x[index])
            assert_near(array.running_var[index], model.running_var)
    assert array.momentum is None
    for bad in ([0.1], "much", [0.1, "much"]):
        with pytest.raises(InvalidArgument, match="momentum"):
            array.momentum = bad
    assert array.momentum is None


def test_momentum_per_model():
    models = [torch.nn.BatchNorm1d(4, momentum=m) for m in (0.1, None, 0.7)]
    array = fuse(models)
    assert array.momentum == [0.1, None, 0.7]
    for _ in range(2):
        x = torch.randn(3, 6, 4)
        array(x)
        for model, own in zip(models, x, strict=True):
            model(own)
    for index, model in enumerate(models):
        torch.testing.assert_close(array.running_var[index], model.running_var)
    assert [model.momentum for model in unfuse(array)] == [0.1, None, 0.7]
    with pytest.raises(InvalidArgument, match="2 values for 3"):
        nn.BatchNorm1d(4, momentum=[0.1, 0.2], B=3)


def test_one_value_per_channel_is_refused_and_counts_nothing():
    layer = nn.BatchNorm2d(3, B=2)
    with pytest.raises(InvalidArgument, match="more than 1 value"):
        layer(torch.randn(2, 1, 3, 1, 1))
    layer.eval()(torch.randn(2, 1, 3, 1, 1))
    assert layer.num_batches_tracked.tolist() == [0, 0]
    assert not layer.running_mean.any()


@pytest.mark.parametrize("shape", [(2, 4, 5, 3), (2, 4, 6, 3, 3), (3, 4, 5, 3, 3)])
def test_refuses_shapes(shape):
    with pytest.raises(InvalidArgument, match=r"\d"):
        nn.BatchNorm2d(5, B=2)(torch.randn(shape))


def test_statistics_switched_off_later():
    """As in torch: buffers stay as they are in training and are used in evaluation."""
    models = make_models(lambda: torch.nn.BatchNorm1d(3), 2)
    array = fuse(models)
    for model in (*models, array):
        model.track_running_stats = False
    x = torch.randn(2, 5, 3)
    torch.testing.assert_close(array(x)[1], models[1](x[1]))
    assert array.num_batches_tracked.tolist() == [0, 0]
    torch.testing.assert_close(array.eval()(x)[1], models[1].eval()(x[1]))


def test_reset_copy_and_frozen():
    layer = nn.BatchNorm1d(3, B=2)
    layer(torch.randn(2, 5, 3))
    other = copy.deepcopy(layer)
    other.reset_parameters()
    assert other.num_batches_tracked.tolist() == [0, 0]
    assert layer.num_batches_tracked.tolist() == [1, 1]
    for parameter in layer.parameters():
        parameter.requires_grad_(False)
    assert not layer(torch.randn(2, 5, 3)).requires_grad


def test_instance_norm_without_a_batch():
    models = make_models(lambda: torch.nn.InstanceNorm2d(4, affine=True), 2)
    check_matches_models(models, torch.randn(2, 4, 3, 5))


def test_instance_norm_momentum_none_is_none_at_all():
    models = make_models(lambda: torch.nn.InstanceNorm1d(4, momentum=None, track_running_stats=True), 2)
    array = fuse(models)
    x = torch.randn(2, 3, 4, 5)
    array(x)
    models[0](x[0])
    torch.testing.assert_close(array.running_mean[0], models[0].running_mean)


@pytest.mark.parametrize("layout", ["contiguous", "channels last"])
@pytest.mark.parametrize("kind", ["relu", "relu6", "leaky_relu", "hardswish", "silu"])
def test_with_what_follows(kind, layout):
    """Norm, sum and activation in one pass are the three one after the other."""
    models = make_models(lambda: torch.nn.BatchNorm2d(6), 3)
    array = nn.BatchNorm2d.from_models(models)
    x, other = torch.randn(3, 4, 6, 5, 3), torch.randn(3, 4, 6, 5, 3)
    if layout == "channels last":
        x, other = (t.movedim(2, -1).contiguous().movedim(-1, 2) for t in (x, other))
    plain = copy.deepcopy(array)
    got, inputs = [], [t.clone().requires_grad_() for t in (x, other)]
    array.activated(inputs[0], kind, 0.2, inputs[1]).square().sum().backward()
    got += [inputs[0].grad, inputs[1].grad, array.weight.grad, array.running_var]
    again = [t.clone().requires_grad_() for t in (x, other)]
    z = plain(again[0]) + again[1]
    activation = getattr(torch.nn.functional, kind)
    (activation(z, 0.2) if kind == "leaky_relu" else activation(z)).square().sum().backward()
    expected = [again[0].grad, again[1].grad, plain.weight.grad, plain.running_var]
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-4, atol=1e-4)


def test_once_more_changes_nothing():
    layer, x = nn.BatchNorm1d(6, B=2), torch.randn(2, 4, 6)
    y = layer(x)
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    assert torch.equal(layer.repeated(x), y)
    for name, value in layer.state_dict().items():
        assert torch.equal(value, before[name])
    layer.eval()
    assert torch.equal(layer.repeated(x), layer(x))


def test_refuses_another_activation_or_residual():
    x = torch.randn(2, 4, 6)
    with pytest.raises(InvalidArgument, match="tanh"):
        nn.BatchNorm1d(6, B=2).activated(x, "tanh")
    with pytest.raises(InvalidArgument, match=r"\[2, 4, 5\]"):
        nn.BatchNorm1d(6, B=2).activated(x, residual=torch.randn(2, 4, 5))
