# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import ops
from dnnsuite.errors import InvalidArgument


@pytest.mark.parametrize("B", [1, 3])
def test_any_rows(B):
    """[B, I], [B, N, I], [B, N, L, I], also views that are not contiguous."""
    weight, bias = torch.randn(B, 4, 6), torch.randn(B, 4)
    for shape in ((B, 6), (B, 5, 6), (B, 5, 2, 6)):
        x = torch.randn(*shape[:-1], 12)[..., ::2]
        y = ops.linear(x, weight, bias)
        assert y.shape == (*shape[:-1], 4)
        for model in range(B):
            expected = torch.nn.functional.linear(x[model], weight[model], bias[model])
            torch.testing.assert_close(y[model], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("x", "bias", "message"),
    [
        ((2, 5, 7), None, r"B = 2 and I = 6 as in weight \[2, 4, 6\], not \[2, 5, 7\]"),
        ((3, 5, 6), None, r"not \[3, 5, 6\]"),
        ((6,), None, r"not \[6\]"),
        ((2, 5, 6), (4,), r"bias must be \[2, 4\], not \[4\]"),
    ],
)
def test_bad_arguments(x, bias, message):
    with pytest.raises(InvalidArgument, match=message):
        ops.linear(torch.ones(x), torch.ones(2, 4, 6), None if bias is None else torch.ones(bias))


@pytest.mark.parametrize("bias", [False, True])
def test_large_products_are_the_same_alone(bias, monkeypatch):
    """Products of their own: right, differentiable, and to the bit what a model alone gets."""
    from dnnsuite.ops import _linear

    x, weight, b = torch.randn(3, 33, 64), torch.randn(3, 48, 64), torch.randn(3, 48) if bias else None
    leaves = [t.requires_grad_() for t in (x, weight, b) if t is not None]
    grad = torch.randn(3, 33, 48)

    def run(limit, models):
        monkeypatch.setattr(_linear, "LARGE", limit)
        inputs = [None if t is None else t[models] for t in (x, weight, b)]
        y = ops.linear(*inputs)
        return [y, *torch.autograd.grad(y, [t for t in inputs if t is not None], grad[models])]

    batched, own = run(2**60, slice(None)), run(0, slice(None))
    assert len(own) == len(leaves) + 1
    for a, c in zip(batched, own, strict=True):
        torch.testing.assert_close(a, c, rtol=1e-4, atol=1e-4)
    for a, c in zip(run(0, slice(1, 2))[:2], own, strict=False):
        assert torch.equal(a[0], c[1])


def test_large_products_under_autocast(monkeypatch):
    from dnnsuite.ops import _linear

    monkeypatch.setattr(_linear, "LARGE", 0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (
            ops.linear(torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5)).dtype == torch.bfloat16
        )
