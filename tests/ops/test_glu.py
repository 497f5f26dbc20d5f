# SPDX-License-Identifier: MIT
import pytest
import torch
from torch.nn import functional as F

from dnnsuite.ops import glu


def _compare(x, dim):
    """Values, gradients and gradients of gradients against torch's operator on each model in float64."""
    x.requires_grad_()
    y = glu(x, dim)
    truth = torch.stack([F.glu(one, dim - 1) for one in x.double()])
    close = {"rtol": 2e-6, "atol": 1e-6} if x.dtype == torch.float32 else {}
    torch.testing.assert_close(y.double(), truth, **close)
    grad = torch.randn_like(truth)
    got, right = (torch.autograd.grad(t, x, grad.to(t.dtype))[0] for t in (y, truth))
    torch.testing.assert_close(got, right, **close)
    return y, got


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("shape", "dim"),
    [
        *(((3, 40, 2 * run), 2) for run in (1, 2, 3, 7, 8, 15, 16, 17, 40)),
        *(((2, 3, 6, 5, 4), dim) for dim in (2, 4)),
        ((1, 9000, 2), 2),  # several tasks, several blocks
        ((2, 700, 34), 2),
        ((2, 2, 20000), 1),
        ((2, 8), 1),
    ],
)
def test_each_length_of_a_run(shape, dim, dtype):
    _compare(torch.randn(shape, dtype=dtype), dim)


@pytest.mark.parametrize("channels", [2, 12, 36])
def test_memory_order_stays(channels):
    x = torch.randn(2, 3, 5, 4, channels).movedim(-1, 2)
    for t in _compare(x, 2):
        assert t.movedim(2, -1).is_contiguous()


def test_what_is_not_finite():
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([[[2.0, -inf], [2.0, inf], [inf, 1.0], [nan, 0.0], [1.0, nan], [3.0, -200.0], [3.0, 200.0]]])
    torch.testing.assert_close(glu(x, 2), F.glu(x, 2), equal_nan=True)


def test_gradients_of_gradients():
    x = torch.randn(2, 3, 4, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda t: glu(t, 3), x)
    last = torch.randn(2, 3, 4, 6, dtype=torch.float64).movedim(-1, 2).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda t: glu(t, 2), last)


def test_what_is_left_to_torch():
    assert glu(torch.randn(2, 3, 8)[..., ::2], 2) is None
    assert glu(torch.randn(1, 3, 8).expand(2, 3, 8), 2) is None
    assert glu(torch.randn(2, 3, 7), 2) is None
    assert glu(torch.randn(2, 3, 8).bfloat16(), 2) is None


def test_nothing():
    assert glu(torch.randn(2, 0, 8), 2).shape == (2, 0, 4)
    assert glu(torch.randn(2, 5, 0), 2).shape == (2, 5, 0)


def test_dimensions_without_halves_are_refused():
    with pytest.raises(RuntimeError, match=r"dimension 2 of \[2, 3, 5\] has no two halves"):
        torch.ops.dnnsuite.glu(torch.randn(2, 3, 5), 2)
    with pytest.raises(RuntimeError, match=r"grad \[2, 3, 3\] is not half of x \[2, 3, 4\]"):
        torch.ops.dnnsuite.glu_backward(torch.randn(2, 3, 3), torch.randn(2, 3, 4), 2)


def test_results_larger_than_the_caches():
    """They are written past them, in whole lines."""
    x = torch.randn(2, 1200, 2048)
    y = glu(x.requires_grad_(), 2)
    torch.testing.assert_close(y, F.glu(x))
    grad = torch.randn_like(y)
    torch.testing.assert_close(*(torch.autograd.grad(z, x, grad)[0] for z in (y, F.glu(x))))
