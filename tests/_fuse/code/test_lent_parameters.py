# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite._fuse.code import lent_parameters
from dnnsuite._fuse.code.lent_parameters import lent
from dnnsuite.ops.array_layers import partly_used, users_of


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("together", [1, 1 << 20])
def test_gradients_reach_the_stacked_parameters(apart, together, monkeypatch):
    monkeypatch.setattr(lent_parameters, "TOGETHER_BYTES", together)
    first, unused = (torch.nn.Parameter(torch.randn(3, 4)) for _ in range(2))
    frozen = torch.nn.Parameter(torch.randn(3, 2), requires_grad=False)
    parts, no_parts, fixed = lent([first, unused, frozen], apart)
    (parts[0].sum() + 2 * parts[1].sum() + fixed[0].sum()).backward()
    assert first.grad.tolist() == [[1.0] * 4, [2.0] * 4, [0.0] * 4]
    assert unused.grad is None
    assert not fixed[0].requires_grad
    assert no_parts[2].data_ptr() == unused[2].data_ptr()


def test_a_model_that_does_not_use_its_parameter_is_told_from_a_gradient_of_zero():
    parameter = torch.nn.Parameter(torch.ones(3, 2))
    (parts,) = lent([parameter])
    (parts[0].sum() + 0 * parts[1].sum()).backward()
    assert users_of(parameter.grad).tolist() == [True, True, False]
    assert [p is parameter for p in partly_used([parameter])] == [True]


def test_code_that_writes_into_its_parameter():
    parameter = torch.nn.Parameter(torch.ones(2, 3))
    (parts,) = lent([parameter], apart=True)
    kept = (parts[0] * parts[0]).sum()
    with torch.no_grad():
        parts[1].mul_(3)
    kept.backward()
    assert parameter.tolist() == [[1.0] * 3, [3.0] * 3]
    assert parameter.grad.tolist() == [[2.0] * 3, [0.0] * 3]


def test_under_a_transform():
    weights = torch.randn(2, 3)
    grad = torch.func.grad(lambda w: lent([w])[0][1].square().sum())(weights)
    torch.testing.assert_close(grad, torch.stack([torch.zeros(3), 2 * weights[1]]))


@pytest.mark.parametrize("apart", [False, True])
def test_filters_of_one_channel_have_torchs_strides(apart):
    filters = torch.nn.Parameter(torch.randn(3, 6, 5, 5, 1).permute(0, 1, 4, 2, 3))
    (parts,) = lent([filters], apart)
    assert [part.stride() for part in parts] == [(25, 25, 5, 1)] * 3
    assert [part.data_ptr() for part in parts] == [row.data_ptr() for row in filters]
    torch.testing.assert_close(torch.stack(list(parts)), filters, rtol=0, atol=0)
