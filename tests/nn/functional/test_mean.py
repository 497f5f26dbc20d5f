# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite.nn.functional.mean import mean


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("dims", [1, -1, (1, 2), (-2, -1)])
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("shape", [(2, 3, 7), (2, 0, 7), (2, 3, 0), (0, 3, 7)])
def test_the_bits_are_torchs(dtype, dims, keepdim, shape):
    x = torch.randn(shape).to(dtype).requires_grad_()
    y, truth = mean(x, dims, keepdim), x.mean(dims, keepdim)
    torch.testing.assert_close(y, truth, rtol=0, atol=0, equal_nan=True)
    grad = torch.randn_like(truth)
    got, wanted = (torch.autograd.grad(t, x, grad)[0] for t in (y, truth))
    torch.testing.assert_close(got, wanted, rtol=0, atol=0)


def test_whole_numbers_have_torchs_error():
    with pytest.raises(RuntimeError, match="mean"):
        mean(torch.ones(2, 3, dtype=torch.int64), 1)


def test_the_gradient_is_not_written_out():
    x = torch.randn(2, 3, 5, 5, 4).movedim(-1, 2).requires_grad_()
    grad = torch.autograd.grad(mean(x, (3, 4)).sum(), x)[0]
    assert grad.untyped_storage().nbytes() < x.untyped_storage().nbytes()
