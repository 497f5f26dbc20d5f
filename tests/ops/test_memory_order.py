# SPDX-License-Identifier: MIT
import itertools

import pytest
import torch

from dnnsuite.ops.memory_order import by_memory_order, in_one_piece, memory_order


def test_dimensions_come_outermost_first_behind_the_model():
    x = torch.randn(2, 3, 4, 5)
    for order in itertools.permutations((1, 2, 3)):
        laid_out = x.permute(0, *order).contiguous()
        back = [0, *(order.index(d) + 1 for d in (1, 2, 3))]
        assert memory_order(laid_out.permute(back)) == [0, *order]
    assert memory_order(x[:1].expand(4, 3, 4, 5)) == [0, 1, 2, 3]


def last(*shape):
    return torch.randn(*shape[:2], *shape[3:], shape[2]).movedim(-1, 2)


@pytest.mark.parametrize("dim", [1, 2, 4])
def test_what_is_joined_keeps_the_memory_order(dim):
    parts = [last(2, 3, 4, 5, 6).requires_grad_() for _ in range(2)]
    joined = by_memory_order(torch.cat, parts, dim)
    assert torch.equal(joined, torch.cat(parts, dim))
    assert joined.movedim(2, -1).is_contiguous()
    grad = torch.randn_like(joined)
    wanted = torch.autograd.grad(torch.cat(parts, dim), parts, grad)
    assert all(map(torch.equal, torch.autograd.grad(joined, parts, grad), wanted))


def test_what_is_cut_has_a_gradient_in_the_memory_order():
    x = last(2, 3, 4, 5, 6).requires_grad_()
    first, second = by_memory_order(lambda t, dim: t[0].chunk(2, dim), [x], 2)
    assert torch.equal(torch.cat([first, second], 2), x)
    assert first.data_ptr() == x.data_ptr()
    grad = torch.autograd.grad(first.sum() + (second * 2).sum(), x)[0]
    assert grad.movedim(2, -1).is_contiguous()
    assert grad.sum((0, 1, 3, 4)).tolist() == [180, 180, 360, 360]


@pytest.mark.parametrize(
    "tensors",
    [
        [torch.randn(2, 3, 4), torch.randn(2, 3, 4)],
        [last(2, 3, 4, 5, 6), torch.randn(2, 1, 4, 5, 6)],
        [last(1, 3, 4, 5, 6).expand(2, 3, 4, 5, 6), last(2, 3, 4, 5, 6)],
        [last(2, 3, 1, 5, 6), last(2, 3, 1, 5, 6)],
        [last(2, 0, 4, 5, 6), last(2, 3, 4, 5, 6)],
        [last(2, 0, 4, 5, 6)],
    ],
)
def test_any_strides_give_torchs_numbers(tensors):
    assert torch.equal(by_memory_order(torch.cat, tensors, 1), torch.cat(tensors, 1))


def test_a_slice_is_copied_into_one_piece():
    images = last(2, 3, 8, 4, 6)
    whole = torch.randn(2, 3, 4)
    for x in (images, whole, whole.mT, whole[:1], whole[:1].expand(5, 3, 4), whole[:, :, :1].expand(2, 3, 8)):
        assert in_one_piece(x) is x
    for x in (images[:, :, :4], whole[:, :, :2], whole[:, ::2]):
        found = in_one_piece(x)
        assert torch.equal(found, x)
        assert in_one_piece(found) is found
        assert memory_order(found) == memory_order(x)
