# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import ops
from dnnsuite.errors import InvalidArgument
from dnnsuite.ops import _vocabulary as module


def inputs(bias, dtype=torch.float32, models=3, rows=200):
    x = torch.randn(models, rows, 6, dtype=dtype)
    weight, target = torch.randn(models, 40, 6, dtype=dtype), torch.randint(40, (models, rows))
    target[:, 3] = -100
    return x, weight, torch.randn(models, 40, dtype=dtype) if bias else None, target


@pytest.mark.parametrize("options", [{}, {"reduction": "sum"}, {"label_smoothing": 0.2, "ignore_index": 5}])
@pytest.mark.parametrize("bias", [False, True])
def test_equals_layer_and_loss_in_several_pieces(bias, options, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 64)
    assert module.chunk_rows(40) == 64
    x, weight, b, target = inputs(bias)
    target[target < 0] = options.get("ignore_index", -100)
    leaves = [t.requires_grad_() for t in (x, weight, b) if t is not None]
    got = ops.linear_cross_entropy(x, weight, target, b, **options)
    expected = ops.cross_entropy(ops.linear(x, weight, b), target, **options)
    torch.testing.assert_close(got, expected)
    scale = torch.tensor([1.0, 2.0, 0.5])
    for a, c in zip(
        torch.autograd.grad(got, leaves, scale, retain_graph=True),
        torch.autograd.grad(expected, leaves, scale, retain_graph=True),
        strict=True,
    ):
        torch.testing.assert_close(a, c, rtol=1e-4, atol=1e-6)
    for a, c in zip(torch.autograd.grad(got.sum(), leaves), torch.autograd.grad(expected.sum(), leaves), strict=True):
        torch.testing.assert_close(a, c, rtol=1e-4, atol=1e-6)


def test_a_model_does_not_feel_the_others():
    x, weight, bias, target = inputs(True)
    together = ops.linear_cross_entropy(x, weight.requires_grad_(), target, bias)
    (whole,) = torch.autograd.grad(together.sum(), weight)
    own = weight.detach()[1:2].requires_grad_()
    alone = ops.linear_cross_entropy(x[1:2], own, target[1:2], bias[1:2])
    assert torch.equal(alone[0], together[1])
    assert torch.equal(torch.autograd.grad(alone.sum(), own)[0][0], whole[1])


def test_gradients_and_theirs():
    x, weight, bias, target = inputs(True, torch.float64, 2, 7)
    leaves = [t.requires_grad_() for t in (x, weight, bias)]

    def call(x, weight, bias):
        return ops.linear_cross_entropy(x, weight, target, bias)

    assert torch.autograd.gradcheck(call, leaves, fast_mode=True)
    assert torch.autograd.gradgradcheck(call, leaves, fast_mode=True)


def test_only_what_is_asked_for():
    x, weight, _, target = inputs(False)
    assert not ops.linear_cross_entropy(x, weight, target).requires_grad
    loss = ops.linear_cross_entropy(x.requires_grad_(), weight, target)
    (gradient,) = torch.autograd.grad(loss.sum(), x)
    assert gradient.shape == x.shape


def test_no_rows():
    x, weight = torch.zeros(2, 0, 6), torch.randn(2, 40, 6, requires_grad=True)
    loss = ops.linear_cross_entropy(x, weight, torch.zeros(2, 0, dtype=torch.long), reduction="sum")
    assert torch.equal(loss, torch.zeros(2))
    assert not torch.autograd.grad(loss.sum(), weight)[0].any()


@pytest.mark.parametrize(
    ("x", "target", "reduction", "message"),
    [
        ((2, 3, 5), (2, 3), "mean", "x must be"),
        ((2, 3, 6), (2, 4), "mean", "target must be"),
        ((2, 3, 6), (2, 3), "none", "'mean' or 'sum'"),
    ],
)
def test_bad_arguments(x, target, reduction, message):
    with pytest.raises(InvalidArgument, match=message):
        ops.linear_cross_entropy(
            torch.ones(x), torch.ones(2, 40, 6), torch.zeros(target, dtype=torch.long), reduction=reduction
        )


def test_under_autocast_and_in_sixteen_bits():
    x, weight, _, target = inputs(False)
    expected = ops.linear_cross_entropy(x, weight, target)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(ops.linear_cross_entropy(x, weight, target), expected, rtol=0.05, atol=0.05)
    got = ops.linear_cross_entropy(x.bfloat16(), weight.bfloat16(), target)
    torch.testing.assert_close(got, expected, rtol=0.05, atol=0.05)
