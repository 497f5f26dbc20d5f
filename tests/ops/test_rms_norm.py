# SPDX-License-Identifier: MIT
"""What is special about rms_norm; what holds for every operator is in test_operators.py."""

import pytest
import torch

from dnnsuite import ops


def test_a_row_of_zeros(device):
    x = torch.zeros(2, 3, 20, device=device, requires_grad=True)
    y = ops.rms_norm(x, None, 1e-4)
    y.sum().backward()
    assert not y.any()
    torch.testing.assert_close(x.grad, torch.full_like(x, 100.0))


def test_refuses():
    with pytest.raises(RuntimeError, match=r"weight must have shape \[2, 4\]"):
        ops.rms_norm(torch.randn(2, 3, 4), torch.ones(2, 3))
    with pytest.raises(RuntimeError, match="last dimension"):
        ops.rms_norm(torch.randn(2, 3, 0))


@pytest.mark.parametrize("columns", [3, 16, 37])
def test_a_shared_batch_without_a_gradient(columns):
    x, weight = torch.randn(9, columns), torch.randn(3, columns, requires_grad=True)
    y = ops.rms_norm(x.expand(3, 9, columns), weight, 1e-6)
    grad = torch.randn(3, 9, columns)
    (found,) = torch.autograd.grad(y, weight, grad)
    wide = weight.detach().double().requires_grad_()
    truth = torch.stack([torch.nn.functional.rms_norm(x.double(), [columns], w, 1e-6) for w in wide])
    (wanted,) = torch.autograd.grad(truth, wide, grad.double())
    for a, b in ((y, truth), (found, wanted)):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-4)
