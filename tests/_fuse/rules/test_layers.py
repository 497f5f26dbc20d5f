# SPDX-License-Identifier: MIT
"""Functions of torch.nn.functional in a user's code become ours."""

import torch
from torch.nn import functional as F

from dnnsuite._fuse.rules.layers import layer_rule
from function_cases import check

KERNEL = torch.randn(2, 3, 3, 3)


def test_functions_of_ours_are_used():
    check(lambda x, w: F.conv2d(x, w, padding=1), torch.randn(2, 4, 3, 6, 6), torch.randn(2, 5, 3, 3, 3))
    check(lambda x: F.conv2d(x, KERNEL), torch.randn(2, 4, 3, 6, 6))
    check(lambda x: F.layer_norm(x, (4,)), torch.randn(2, 5, 4))
    check(lambda x, t: F.cross_entropy(x, t), torch.randn(2, 5, 4), torch.randint(4, (2, 5)))


def test_what_has_the_name_but_is_another_function():
    assert layer_rule(torch.dropout) is None  # another order of arguments than torch.nn.functional.dropout
    assert layer_rule(torch.add) is None
