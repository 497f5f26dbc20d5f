# SPDX-License-Identifier: MIT
"""What is special about convolutions written into place; gradients in general: tests/nn/test_convolve_models.py."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dnnsuite import _memory, ops

PLAIN = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
CASES = {
    "3 x 3": ((8, 16, 12, 12), (24, 16, 3, 3), PLAIN),
    "one tap in groups": ((4, 16, 16, 16), (32, 4, 1, 1), ([2, 2], [0, 0], [1, 1], False, [0, 0], 4)),
    "few inputs": ((4, 3, 20, 20), (16, 3, 5, 5), ([1, 1], [2, 2], [1, 1], False, [0, 0], 1)),
    "transposed": ((4, 8, 9, 9), (8, 16, 4, 4), ([2, 2], [1, 1], [1, 1], True, [0, 0], 1)),
    # Results of the same size, of which one may take the place that is for another.
    "as many weights as biases": ((2, 1, 10, 22), (2, 1, 1, 1), ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)),
    "as many weights as images": ((4, 8, 6, 6), (16, 8, 3, 3), PLAIN),
    "as many images as biases": ((1, 2, 4, 4), (32, 2, 3, 3), PLAIN),
    "volumes": ((2, 4, 6, 6, 6), (8, 4, 3, 3, 3), ([1] * 3, [1] * 3, [1] * 3, False, [0] * 3, 1)),
}


def tensors(case, dtype=torch.float32, last=True, B=3):
    x, weight, geometry = CASES[case]
    found = torch.randn(B, *x, dtype=dtype), torch.randn(B, *weight, dtype=dtype)
    if last and len(x) == 4:
        found = tuple(t.movedim(2, -1).contiguous().movedim(-1, 2) for t in found)
    outputs = weight[1] * geometry[-1] if geometry[3] else weight[0]
    return [t.requires_grad_() for t in (*found, torch.randn(B, outputs, dtype=dtype))], geometry


def alone(x, weight, bias, geometry):
    own = zip(x.unbind(0), weight.unbind(0), bias.unbind(0), strict=True)
    return torch.stack([torch.convolution(*each, *geometry) for each in own])


@pytest.fixture
def pool():
    """The allocator that takes offers."""
    release = _memory.hold()
    assert _memory.holding()
    yield
    release()


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_bits_are_those_of_a_model_alone(case, last, pool):
    """Three times, for what torch asked for is known from the second time on; the results are those without a pool."""
    inputs, geometry = tensors(case, last=last)
    truth = alone(*inputs, geometry)
    grad = torch.randn_like(truth)
    wanted = torch.autograd.grad(truth, inputs, grad)
    for _ in range(3):
        y = ops.convolve_models(*inputs, geometry)
        assert torch.equal(y, truth)
        for got, right in zip(torch.autograd.grad(y, inputs, grad), wanted, strict=True):
            assert torch.equal(got, right)


@pytest.mark.parametrize("case", ["3 x 3", "few inputs"])
def test_float64(case):
    inputs, geometry = tensors(case, torch.float64)
    y, truth = ops.convolve_models(*inputs, geometry), alone(*inputs, geometry)
    torch.testing.assert_close(y, truth)
    grads = (torch.autograd.grad(t.square().sum(), inputs) for t in (y, truth))
    for got, wanted in zip(*grads, strict=True):
        torch.testing.assert_close(got, wanted)


def copies(run):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as found:
        run()
    return sum(event.name == "aten::copy_" for event in found.events())


@pytest.mark.parametrize("case", ["3 x 3", "one tap in groups", "few inputs"])
def test_nothing_is_copied(case, pool):
    """Channels last, as arrays convolve, each result lies in its place from the second time on; what torch copies
    within a convolution it goes on copying."""
    (x, weight, _), geometry = tensors(case)
    y = ops.convolve_models(x, weight, None, geometry)
    grad = torch.randn(y.movedim(2, -1).shape).movedim(-1, 2)

    def ours():
        torch.autograd.grad(ops.convolve_models(x, weight, None, geometry), (x, weight), grad)

    def plain():
        for own in zip(x.unbind(0), weight.unbind(0), grad, strict=True):
            leaves = [t.detach().requires_grad_() for t in own[:2]]
            torch.autograd.grad(torch.convolution(*leaves, None, *geometry), leaves, own[2])

    ours()
    ours()
    assert copies(ours) == copies(plain)


def test_results_live_as_long_as_they_are_used(pool):
    inputs, geometry = tensors("3 x 3")
    with torch.no_grad():
        first = ops.convolve_models(*inputs, geometry)
        kept = first[1].clone()
        others = [ops.convolve_models(*inputs, geometry).zero_() for _ in range(3)]
        assert torch.equal(first[1], kept)
        own = others[0][2]
        del others
        assert own.eq(0).all()


def test_the_gradient_of_a_weight_that_models_share(pool):
    """An expanded weight has no place for each model's gradient; they are added up."""
    x, weight = torch.randn(2, 4, 16, 8, 8), torch.randn(1, 512, 16, 3, 3, requires_grad=True)
    y = ops.convolve_models(x, weight.expand(2, -1, -1, -1, -1), None, PLAIN)
    grad = torch.randn_like(y)
    (got,) = torch.autograd.grad(y, weight, grad)
    folded = torch.convolution(x.flatten(0, 1), weight[0], None, *PLAIN)
    (wanted,) = torch.autograd.grad(folded, weight, grad.flatten(0, 1))
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-3)


def test_shapes_without_values():
    inputs, geometry = tensors("transposed")
    real = ops.convolve_models(*inputs, geometry)
    meta = torch.ops.dnnsuite.convolve_models(*(t.detach().to("meta") for t in inputs), *geometry)
    assert meta.shape == real.shape


@pytest.mark.parametrize(
    ("x", "weight", "message"),
    [((2, 8, 8), (2, 4, 3), "x must be"), ((2, 1, 4, 8, 8), (3, 4, 4, 3, 3), r"weight \[B, O, I, \*\]")],
)
def test_refuses(x, weight, message):
    with pytest.raises(RuntimeError, match=message):
        ops.convolve_models(torch.randn(x), torch.randn(weight), None, PLAIN)


class _Masks(TorchDispatchMode):
    """Note of which inputs each convolution's gradient is computed."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.convolution_backward.default:
            self.found.append(list(args[-1][:2]))
        return func(*args, **(kwargs or {}))


def test_a_gradient_by_the_images_computes_none_by_the_filters():
    x = torch.randn(2, 3, 2, 5, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 4, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    for wanted, mask in ((x, [True, False]), (weight, [False, True])):
        y = ops.convolve_models(x * 1, weight * 1, None, PLAIN)
        with _Masks() as masks:
            torch.autograd.grad(y.square().sum(), wanted, create_graph=True)
        assert masks.found == [mask] * 2
