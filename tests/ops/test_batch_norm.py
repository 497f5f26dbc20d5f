# SPDX-License-Identifier: MIT
"""What is special about batch_norm_act; what holds for every operator is in test_operators.py."""

import contextlib

import pytest
import torch
from torch.nn import functional as F

from dnnsuite import ops
from dnnsuite.ops.device import cpu_for_gpu


def channels_last(x):
    return x.movedim(2, -1).contiguous().movedim(-1, 2)


def test_lies_in_memory_as_its_input():
    x = torch.randn(2, 3, 5, 4, 4)
    assert ops.batch_norm_act(x)[0].is_contiguous()
    y = ops.batch_norm_act(channels_last(x))[0]
    assert y.movedim(2, -1).is_contiguous()
    assert ops.batch_norm_act(x.transpose(3, 4))[0].is_contiguous()


def test_models_may_lie_apart():
    """A shared batch and part of a larger array are read where they are."""
    x = torch.randn(4, 5, 4, 4)
    shared = ops.batch_norm_act(x.expand(3, *x.shape))[0]
    assert torch.equal(shared[2], ops.batch_norm_act(x[None])[0][0])
    whole = torch.randn(6, *x.shape)
    assert torch.equal(ops.batch_norm_act(whole[::2])[0][1], ops.batch_norm_act(whole[2:3])[0][0])


def test_far_from_zero_loses_no_digits():
    x = 1000 + torch.randn(2, 64, 5, 4, 4)
    expected = torch.stack([F.batch_norm(own, None, None, training=True) for own in x.double()])
    for given in (x, channels_last(x)):
        assert (ops.batch_norm_act(given)[0] - expected).abs().max() < 2e-3


def test_statistics():
    x = torch.randn(2, 6, 3, 2)
    _, statistics = ops.batch_norm_act(x)
    torch.testing.assert_close(statistics[0], x.mean((1, 3)))
    torch.testing.assert_close(statistics[2], x.var((1, 3)))
    assert not statistics.requires_grad


def test_refuses():
    with pytest.raises(RuntimeError, match=r"weight must have shape \[2, 4\]"):
        ops.batch_norm_act(torch.randn(2, 3, 4), torch.ones(2, 3))
    with pytest.raises(RuntimeError, match="hardswish"):
        ops.batch_norm_act(torch.randn(2, 3, 4), activation="tanh")
    with pytest.raises(RuntimeError, match="go together"):
        ops.batch_norm_act(torch.randn(2, 3, 4), mean=torch.zeros(2, 4))


@pytest.mark.parametrize("activation", ["none", "relu"])
@pytest.mark.parametrize("last", [False, True])
def test_a_shared_batch_without_a_gradient(activation, last):
    """Only the parameters' gradients are computed."""
    x = torch.randn(4, 6, 5, 5)
    x = x.movedim(1, -1).contiguous().movedim(-1, 1) if last else x
    weight, bias = (torch.randn(3, 6, requires_grad=True) for _ in range(2))
    y, _ = ops.batch_norm_act(x.expand(3, *x.shape), weight, bias, activation=activation)
    grad = torch.randn(3, 4, 6, 5, 5)
    found = torch.autograd.grad(y, (weight, bias), grad)
    wide = [t.detach().double().requires_grad_() for t in (weight, bias)]
    truth = torch.stack(
        [
            torch.nn.functional.batch_norm(x.double(), None, None, w, b, training=True)
            for w, b in zip(*wide, strict=True)
        ]
    )
    truth = truth.relu() if activation == "relu" else truth
    wanted = torch.autograd.grad(truth, wide, grad.double())
    for a, b in zip((y, *found), (truth, *wanted), strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-4)


def in_turn(x):
    """The same with the models' samples side by side, as a convolution in groups leaves them."""
    return x.transpose(0, 1).contiguous().transpose(0, 1)


def pixels_in_turn(x):
    return x.permute(1, 3, 4, 0, 2).contiguous().permute(3, 0, 4, 1, 2)


@pytest.mark.parametrize("order", [in_turn, pixels_in_turn])
def test_models_side_by_side_stay_so(order):
    x, residual, grad = (torch.randn(3, 4, 5, 2, 3, dtype=torch.float64) for _ in range(3))
    results = []
    for put in (torch.clone, order):
        leaves = [put(t).detach().requires_grad_() for t in (x, residual)]
        y = ops.batch_norm_act(leaves[0], None, None, leaves[1], activation="silu")[0]
        results.append([y, *torch.autograd.grad(y, leaves, put(grad))])
    for one, other in zip(*results, strict=True):
        assert other.stride() == order(x).stride()
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("order", [torch.clone, in_turn, channels_last])
@pytest.mark.parametrize("momentum", [0.1, 0.7])
@pytest.mark.parametrize("device", [contextlib.nullcontext, cpu_for_gpu])
def test_running_statistics_in_the_same_pass(order, momentum, device):
    x = order(torch.randn(3, 4, 5, 2, 3, dtype=torch.float64)).requires_grad_()
    weight, bias = (torch.randn(3, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    mean, variance = torch.randn(3, 5, dtype=torch.float64), torch.rand(3, 5, dtype=torch.float64)
    y, statistics = ops.batch_norm_act(x, weight, bias, activation="relu")
    wanted = mean.lerp(statistics[0], momentum), variance.lerp(statistics[2], momentum)
    versions = mean._version, variance._version
    with device():
        found = ops.batch_norm_act_running(x, weight, bias, None, mean, variance, 1e-5, "relu", 0.01, momentum)
    torch.testing.assert_close((found, mean, variance), (y, *wanted))
    assert not found._is_view()  # what follows may write into it
    assert mean._version > versions[0]
    assert variance._version > versions[1]
    grads = [torch.autograd.grad(result.square().sum(), (x, weight, bias)) for result in (found, y)]
    torch.testing.assert_close(*grads)


def test_running_statistics_in_the_same_pass_have_gradients_of_gradients():
    x = torch.randn(2, 3, 2, 2, dtype=torch.float64, requires_grad=True)

    def call(x):
        running = torch.zeros(2, 2, dtype=torch.float64), torch.ones(2, 2, dtype=torch.float64)
        with cpu_for_gpu():
            return ops.batch_norm_act_running(x, None, None, None, *running, 1e-5, "silu", 0.01, 0.1)

    assert torch.autograd.gradgradcheck(call, (x,), fast_mode=True)


def test_batches_are_counted_in_the_same_pass():
    x, tracked = torch.randn(3, 4, 5), torch.tensor([0, 7, 2**40])
    running = torch.zeros(3, 5), torch.ones(3, 5)
    options = (None, None, None, *running, 1e-5, "none", 0.0, 0.1)
    with cpu_for_gpu():
        version = tracked._version
        assert ops.batch_norm_act_running(x, *options, tracked) is not None
        assert tracked.tolist() == [1, 8, 2**40 + 1]
        assert tracked._version > version
        for other in (tracked.int(), torch.zeros(6, dtype=torch.int64)[::2]):
            assert ops.batch_norm_act_running(x, *options, other) is None
    with pytest.raises(RuntimeError, match=r"tracked must have shape \[3\]"):
        torch.ops.dnnsuite.batch_norm_act_counted_(
            torch.empty_like(x), torch.empty(3, 3, 5), *running, torch.zeros(2, dtype=torch.int64), x, None, None,
            None, 1e-5, "none", 0.0, 0.1,
        )  # fmt: skip


def test_running_statistics_of_another_type_are_not_taken_in():
    x, running = torch.randn(2, 3, 2, 2), torch.zeros(2, 2, dtype=torch.float64)
    with cpu_for_gpu():
        assert ops.batch_norm_act_running(x, None, None, None, running, running, 1e-5, "none", 0.0, 0.1) is None
        own = torch.zeros(3, 2)  # of three models, which share the batch
        assert ops.batch_norm_act_running(x[:1], None, None, None, own, own, 1e-5, "none", 0.0, 0.1) is None
    assert not running.any()


@pytest.mark.parametrize("order", [channels_last, torch.Tensor.contiguous])
def test_larger_than_the_caches_is_the_same(order):
    """Written past them."""
    x = order(torch.randn(2, 16, 32, 64, 64)).requires_grad_()
    residual = order(torch.randn_like(x)).detach()
    y, _ = ops.batch_norm_act(x, residual=residual, activation="relu")
    grad = order(torch.randn_like(y))
    (dx,) = torch.autograd.grad(y, x, grad)
    own = x.detach()[1].double().requires_grad_()
    wanted = F.relu(F.batch_norm(own, None, None, training=True) + residual[1])
    torch.testing.assert_close(y[1].double(), wanted, rtol=1e-4, atol=1e-4)
    (expected,) = torch.autograd.grad(wanted, own, grad[1].double())
    torch.testing.assert_close(dx[1].double(), expected, rtol=1e-4, atol=1e-4)
