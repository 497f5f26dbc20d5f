# SPDX-License-Identifier: MIT
import gc

import torch

from dnnsuite.ops.array_layers import join_gradients, partly_used, users_of


def test_a_model_that_used_none_of_a_parameter_is_told_from_one_with_a_gradient_of_zero():
    used, other = (torch.nn.Parameter(torch.randn(3, 2)) for _ in range(2))
    used.grad = torch.zeros(3, 2).fill_(-0.0)
    for _ in range(2):  # gradients of two passes are added
        used.grad += join_gradients(used, [torch.full((2,), 2.0), None, torch.zeros(2)])
    assert [p is used for p in partly_used([other, used])] == [True]
    assert users_of(used.grad).tolist() == [True, False, True]
    assert used.grad.tolist() == [[4, 4], [0, 0], [0, 0]]
    (used.sum() * 0).backward()  # all models use it
    assert users_of(used.grad).tolist() == [True, True, True]
    assert join_gradients(other, [None, None, None]) is None


def test_nothing_is_kept_of_a_parameter_that_is_gone():
    parameter = torch.nn.Parameter(torch.ones(2, 1))
    join_gradients(parameter, [None, torch.ones(1)])
    assert len(partly_used([parameter])) == 1
    place = id(parameter)
    del parameter
    gc.collect()
    fresh = [torch.nn.Parameter(torch.ones(2, 1)) for _ in range(50)]
    assert not partly_used(fresh), place
