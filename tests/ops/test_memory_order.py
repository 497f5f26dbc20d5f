# SPDX-License-Identifier: MIT
import itertools

import torch

from dnnsuite.ops.memory_order import concatenated, in_one_piece, memory_order


def test_dimensions_come_outermost_first_behind_the_model():
    x = torch.randn(2, 3, 4, 5)
    for order in itertools.permutations((1, 2, 3)):
        laid_out = x.permute(0, *order).contiguous()
        back = [0, *(order.index(d) + 1 for d in (1, 2, 3))]
        assert memory_order(laid_out.permute(back)) == [0, *order]
    assert memory_order(x[:1].expand(4, 3, 4, 5)) == [0, 1, 2, 3]


def _channels_last(*shape):
    return (
        torch.randn(*shape, dtype=torch.float64).movedim(2, -1).contiguous().movedim(-1, 2).requires_grad_()
    )


def test_tensors_are_concatenated_in_the_memory_order_of_the_largest():
    last, small = _channels_last(2, 3, 5, 4, 6), torch.randn(2, 3, 1, 4, 6, dtype=torch.float64)
    for dim in (1, 2, -1):
        for tensors in ([last, last * 2], [last.detach(), last[:, :, :2]] if dim == 2 else [last]):
            found, expected = concatenated(tensors, dim), torch.cat(tensors, dim)
            assert torch.equal(found, expected)
            assert found.stride(2) == 1
            assert not found.is_contiguous()
    assert concatenated([small, last], 2).stride(2) == 1
    assert concatenated([small.expand(2, 3, 7, 4, 6), last.detach()], 2).shape == (2, 3, 12, 4, 6)
    assert concatenated([torch.randn(2, 3, 9, 4, 6), small], 2).is_contiguous()
    assert torch.autograd.gradcheck(lambda x: concatenated([x, x * 2], 2), [last])


def test_a_slice_is_copied_into_one_piece():
    last = _channels_last(2, 3, 8, 4, 6).detach()
    whole = torch.randn(2, 3, 4)
    for x in (last, whole, whole.mT, whole[:1], whole[:1].expand(5, 3, 4), whole[:, :, :1].expand(2, 3, 8)):
        assert in_one_piece(x) is x
    for x in (last[:, :, :4], whole[:, :, :2], whole[:, ::2]):
        found = in_one_piece(x)
        assert torch.equal(found, x)
        assert in_one_piece(found) is found
        assert memory_order(found) == memory_order(x)
