# SPDX-License-Identifier: MIT
import gc

import torch

from dnnsuite.ops.partial_use import partly_used, source_of, split_by_model, users_of


def test_a_model_that_used_none_of_a_parameter_is_told_from_one_with_a_gradient_of_zero():
    used, other = (torch.nn.Parameter(torch.randn(3, 2)) for _ in range(2))
    for _ in range(2):  # gradients of two passes are added
        parts = split_by_model(used)
        ((parts[0] * 2).sum() + (parts[2] * 0).sum() + other.sum()).backward()
    assert [p is used for p in partly_used([other, used])] == [True]
    assert users_of(used.grad).tolist() == [True, False, True]
    assert used.grad.tolist() == [[4, 4], [0, 0], [0, 0]]
    (used.sum() * 0).backward()  # all models use it, outside of a split
    assert users_of(used.grad).tolist() == [True, True, True]


def test_nothing_is_kept_of_a_parameter_that_is_gone():
    parameter = torch.nn.Parameter(torch.ones(2, 1))
    split_by_model(parameter)[1].sum().backward()
    assert len(partly_used([parameter])) == 1
    place = id(parameter)
    del parameter
    gc.collect()
    fresh = [torch.nn.Parameter(torch.ones(2, 1)) for _ in range(50)]
    assert not partly_used(fresh), place


def test_a_part_tells_what_it_was_split_off():
    parameter = torch.nn.Parameter(torch.randn(3, 2))
    found = source_of(split_by_model(parameter)[2])
    assert found is not None
    assert found[0] is parameter
    assert found[1] == 2
    assert source_of(parameter) is None
