# SPDX-License-Identifier: MIT
import copy

import pytest
import torch

import dnnsuite
from dnnsuite import nn
from dnnsuite.errors import InvalidArgument
from helpers import check_matches_models, make_models


def test_starts_as_torch_does():
    torch.manual_seed(0)
    array = nn.Conv2d(4, 6, 3, groups=2, B=3)
    torch.manual_seed(0)
    for index in range(3):
        plain = torch.nn.Conv2d(4, 6, 3, groups=2)
        assert torch.equal(array.weight[index], plain.weight)
        assert torch.equal(array.bias[index], plain.bias)


@pytest.mark.parametrize("output_size", [(9, 11), (2, 3, 9, 11), [10, 12]])
def test_a_transposed_layer_takes_the_size_of_its_result(output_size):
    models = make_models(lambda: torch.nn.ConvTranspose2d(5, 3, 3, stride=2, padding=1), 2)
    check_matches_models(models, torch.randn(2, 2, 5, 5, 6), output_size=output_size)


@pytest.mark.parametrize("output_size", [(8, 11), (9, 13), (9,), (1, 9, 11)])
def test_and_refuses_one_it_cannot_have(output_size):
    layer = nn.ConvTranspose2d(5, 3, 3, stride=2, padding=1, B=2)
    with pytest.raises(InvalidArgument, match=r"from \[9, 11\] to \[10, 12\]"):
        layer(torch.randn(2, 2, 5, 5, 6), output_size)


@pytest.mark.parametrize("shape", [(2, 4, 8, 8), (2, 3, 3, 8, 8, 1), (3, 1, 4, 8, 8), (2, 4, 8)])
def test_refuses_other_shapes(shape):
    with pytest.raises(InvalidArgument, match="Conv2d"):
        nn.Conv2d(3, 5, 3, B=2)(torch.randn(shape))


def test_torch_checks_the_arguments():
    with pytest.raises(ValueError, match="divisible by groups"):
        nn.Conv1d(3, 4, 3, groups=2, B=2)
    with pytest.raises(ValueError, match="strided"):
        nn.Conv2d(3, 4, 3, stride=2, padding="same", B=2)


def test_frozen_and_empty():
    layer = nn.Conv2d(3, 5, 3, padding=1, B=2).requires_grad_(False)
    x = torch.randn(2, 0, 3, 8, 8, requires_grad=True)
    y = layer(x)
    assert y.shape == (2, 0, 5, 8, 8)
    y.sum().backward()
    assert x.grad.shape == x.shape


def test_under_autocast():
    layer, x = nn.Conv2d(3, 5, 3, B=2), torch.randn(2, 4, 3, 8, 8)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), layer(x), rtol=3e-2, atol=3e-2)


def channels_last(weight):
    return weight.movedim(2, -1).is_contiguous()


def test_weights_lie_as_their_device_convolves():
    layer = nn.Conv2d(4, 6, 3, B=2)
    assert channels_last(layer.weight)
    assert channels_last(layer.double().weight)
    assert channels_last(copy.deepcopy(layer).weight)
    assert layer.to("meta").weight.is_contiguous()
    assert channels_last(nn.Conv3d(4, 6, 3, B=2).weight)
    assert nn.ConvTranspose3d(4, 6, 3, B=2).weight.is_contiguous()
    assert channels_last(nn.Conv1d(4, 6, 3, B=2).weight)
    assert channels_last(nn.ConvTranspose1d(4, 6, 3, B=2).double().weight)
    (fused,) = dnnsuite.fuse([torch.nn.Sequential(torch.nn.ConvTranspose2d(4, 6, 3)) for _ in range(2)])._root
    assert channels_last(fused.weight)


@pytest.mark.parametrize("kind", [torch.nn.Conv1d, torch.nn.ConvTranspose1d])
def test_weights_of_lines_are_not_copied(kind):
    models = [kind(16, 32, 5) for _ in range(3)]
    layer = getattr(nn, kind.__name__).from_models(models)
    x = torch.randn(3, 2, 9, 16).movedim(-1, 2).requires_grad_()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        y = layer(x)
        y.square().sum().backward()
    truth = torch.stack([model(one) for model, one in zip(models, x.detach(), strict=True)])
    torch.testing.assert_close(y, truth, rtol=1e-4, atol=1e-4)
    truth.square().sum().backward()
    wanted = torch.stack([model.weight.grad for model in models])
    torch.testing.assert_close(layer.weight.grad, wanted, rtol=1e-4, atol=1e-4)
    assert channels_last(layer.weight.grad)
    copies = [torch.Size(e.input_shapes[0]).numel() for e in profile.events() if e.name == "aten::copy_"]
    assert layer.weight.numel() not in copies
