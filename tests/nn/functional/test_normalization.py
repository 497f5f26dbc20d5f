# SPDX-License-Identifier: MIT
import pytest
import torch
from torch.nn import functional as F

from dnnsuite.errors import InvalidArgument
from dnnsuite.nn import functional


def test_batch_norm_with_a_momentum_per_model():
    x, mean, var = torch.randn(3, 6, 4), torch.zeros(3, 4), torch.ones(3, 4)
    momenta = [0.1, 0.5, 1.0]
    functional.batch_norm(x, mean, var, training=True, momentum=torch.tensor(momenta))
    for model, momentum in enumerate(momenta):
        own = torch.zeros(4), torch.ones(4)
        F.batch_norm(x[model], *own, training=True, momentum=momentum)
        torch.testing.assert_close(mean[model], own[0])
        torch.testing.assert_close(var[model], own[1])


def test_batch_norm_needs_statistics_somewhere():
    with pytest.raises(InvalidArgument, match="running_mean"):
        functional.batch_norm(torch.randn(2, 3, 4), None, None)


@pytest.mark.parametrize("name", ["batch_norm", "group_norm", "instance_norm"])
def test_refuses_parameters_of_another_shape(name):
    first = {"batch_norm": (None, None), "group_norm": (2,), "instance_norm": (None, None)}[name]
    keywords = {"training": True} if name == "batch_norm" else {}
    with pytest.raises(InvalidArgument, match=r"\[2, 4\]"):
        getattr(functional, name)(torch.randn(2, 3, 4, 5), *first, weight=torch.ones(4), **keywords)
    with pytest.raises(InvalidArgument, match=r"\[2, 3\]"):
        getattr(functional, name)(torch.randn(2, 3), *first, **keywords)


def test_layer_and_rms_norm_over_several_dimensions():
    x, weight = torch.randn(2, 5, 3, 4), torch.randn(2, 3, 4)
    layer = functional.layer_norm(x, (3, 4), weight)
    rms = functional.rms_norm(x, (3, 4), weight)
    for model in range(2):
        torch.testing.assert_close(layer[model], F.layer_norm(x[model], (3, 4), weight[model]))
        torch.testing.assert_close(rms[model], F.rms_norm(x[model], (3, 4), weight[model]))
    with pytest.raises(InvalidArgument, match=r"3, 4"):
        functional.rms_norm(x, (3, 4), weight[0])


def test_local_response_norm():
    x = torch.randn(2, 3, 4, 5)
    torch.testing.assert_close(functional.local_response_norm(x, 2)[1], F.local_response_norm(x[1], 2))


def test_group_norm_of_many_channels_that_lie_last():
    x = torch.randn(2, 3, 5, 5, 128, dtype=torch.float64).movedim(-1, 2).requires_grad_()
    tensors = x, *(torch.randn(2, 128, dtype=torch.float64, requires_grad=True) for _ in range(2))
    y = functional.group_norm(x, 4, *tensors[1:])
    truth = torch.stack([torch.nn.functional.group_norm(t, 4, w, b) for t, w, b in zip(*tensors, strict=True)])
    torch.testing.assert_close(y, truth)
    assert y.movedim(2, -1).is_contiguous()
    grad = torch.randn_like(truth)
    got, wanted = (torch.autograd.grad(result, tensors, grad) for result in (y, truth))
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("size", [2, 5])
@pytest.mark.parametrize("shape", [(2, 3, 6, 4, 5), (1, 3, 6, 7), (2, 1, 1, 3, 3), (2, 0, 6, 4, 4)])
def test_local_response_norm_of_channels_that_lie_last(size, shape):
    x = torch.randn(*shape[:2], *shape[3:], shape[2], dtype=torch.float64).movedim(-1, 2).requires_grad_()
    y = functional.local_response_norm(x, size, alpha=0.5, beta=0.6, k=2.0)
    truth = torch.stack([F.local_response_norm(one, size, 0.5, 0.6, 2.0) for one in x])
    torch.testing.assert_close(y, truth)
    grad = torch.randn_like(truth)
    torch.testing.assert_close(*(torch.autograd.grad(t, x, grad)[0] for t in (y, truth)))
    assert y.movedim(2, -1).is_contiguous()


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("lies_last", [False, True])
@pytest.mark.parametrize("shape", [(3, 2, 5, 4, 6), (3, 1, 40, 3, 3), (1, 4, 20, 7), (2, 1, 3, 2, 2, 5), (2, 0, 3, 4)])
def test_instance_norm_in_both_layouts(affine, lies_last, shape):
    x = torch.randn(shape, dtype=torch.float64)
    x = (x.movedim(2, -1).contiguous().movedim(-1, 2) if lies_last else x).add(3).requires_grad_()
    own = [torch.randn(shape[0], shape[2], dtype=torch.float64, requires_grad=True) for _ in range(2 * affine)]
    y = functional.instance_norm(x, None, None, *own)
    truth = _normalised(x, *own)
    torch.testing.assert_close(y, truth)
    grad = torch.randn(shape, dtype=torch.float64)
    torch.testing.assert_close(*(torch.autograd.grad(t, (x, *own), grad) for t in (y, truth)))


def _normalised(x, weight=None, bias=None):
    """The formula: torch's own gradient of one sample is wrong if the result's gradient has its channels last."""
    dims = tuple(range(3, x.dim()))
    away = x - x.mean(dims, True)
    y = away / (away.square().mean(dims, True) + 1e-5).sqrt()
    if weight is None:
        return y
    w, b = (p.view(len(x), 1, -1, *[1] * len(dims)) for p in (weight, bias))
    return y * w + b


def test_instance_norm_of_large_means_in_float():
    x = torch.randn(2, 3, 9, 9, 40).movedim(-1, 2) + 1000
    torch.testing.assert_close(functional.instance_norm(x), _normalised(x.double()).float(), rtol=0, atol=2e-3)


def test_instance_norm_needs_more_than_one_value():
    with pytest.raises(InvalidArgument, match="more than 1 value"):
        functional.instance_norm(torch.randn(2, 3, 4, 1, 1))
