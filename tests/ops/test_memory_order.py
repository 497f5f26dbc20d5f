# SPDX-License-Identifier: MIT
import itertools

import torch

from dnnsuite.ops.memory_order import memory_order


def test_dimensions_come_outermost_first_behind_the_model():
    x = torch.randn(2, 3, 4, 5)
    for order in itertools.permutations((1, 2, 3)):
        laid_out = x.permute(0, *order).contiguous()
        back = [0, *(order.index(d) + 1 for d in (1, 2, 3))]
        assert memory_order(laid_out.permute(back)) == [0, *order]
    assert memory_order(x[:1].expand(4, 3, 4, 5)) == [0, 1, 2, 3]
