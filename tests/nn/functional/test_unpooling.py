# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite.nn import functional


@pytest.mark.parametrize("last", [False, True])
def test_images_keep_their_memory_order_when_a_pool_is_undone(last):
    x = torch.randn(3, 2, 4, 6, 6)
    x = x.movedim(2, -1).contiguous().movedim(-1, 2) if last else x
    y, indices = functional.max_pool2d(x, 2, return_indices=True)
    y = y.detach().requires_grad_()
    whole = functional.max_unpool2d(y, indices, 2)
    assert whole.stride() == x.stride()
    truth = torch.stack([torch.nn.functional.max_unpool2d(*one, 2) for one in zip(y, indices, strict=True)])
    assert torch.equal(whole, truth)
    grad = torch.randn_like(truth)
    assert torch.equal(*(torch.autograd.grad(z, y, grad)[0] for z in (whole, truth)))
