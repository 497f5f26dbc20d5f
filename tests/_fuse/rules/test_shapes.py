# SPDX-License-Identifier: MIT
import pytest
import torch
from torch.nn import functional as F

from dnnsuite.errors import InvalidArgument
from function_cases import check, run
from helpers import check_matches_models, make_models

PICK = torch.tensor([2, 0])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.view(x.size(0), -1) + x.reshape((x.shape[0], 12)),
        lambda x: x.view(-1) + x.reshape(-1),
        lambda x: x.transpose(0, 1).contiguous().view(3, 16),
        lambda x: x.view_as(x) + x.reshape_as(x),
        lambda x: x[:, 0].reshape(4, 4) + torch.ones(16).view_as(x[:, 0].reshape(4, 4)),
        lambda x: x[:, :, :1].expand(-1, -1, 5) + x[:, :, :1].expand(2, *x.shape[:2], 5),
        lambda x: x[0, 0].expand(4, 3, 4) + x[0].expand_as(x),
        lambda x: x.repeat(2, 1, 1) + x.tile(2, 1, 1),
        lambda x: x.repeat(2, 1, 1, 1),
        lambda x: torch.broadcast_to(x[0], (2, 4, 3, 4)) + x[0, 0].broadcast_to(4, 3, 4),
        lambda x: torch.broadcast_tensors(x[0], x[:, :1, :1], torch.arange(4, dtype=torch.float16)),
        lambda x: torch.broadcast_tensors(x.sum(), x[0, 0].double()),
        lambda x: x.repeat_interleave(2, 0) + torch.repeat_interleave(x, 2, dim=-3),
        lambda x: (x.repeat_interleave(3), x.sum().repeat_interleave(2), x.repeat_interleave(repeats=2, dim=2)),
        lambda x: x.tril() + x.triu(1) + F.pad(x, (1, -1)),
        lambda x: F.one_hot((x > 0).long(), 3),
        lambda x: x.T.sum() + x[0].T.sum() + x.mT.sum() if False else x.mT,
        lambda x: x[0] + x[-1] + x[1:3].sum(0) + x[..., 0].sum(),
        lambda x: x[:, None, 1] + x[:, ::2].sum(1, keepdim=True),
        lambda x: x[PICK] + x[:2, PICK].sum(1, keepdim=True),
        lambda x: x[:, [0, 2]] * 2,
        lambda x: x.new_zeros(3).add_(x[0, :, 0]) + x.new_full((3,), 2.0) + x.new_ones(3),
        lambda x: (x.shape, x.dim(), x.ndim, len(x), x.numel(), x.size(1), x.is_floating_point(), x.stride()[-1]),
        lambda x: [row * 2 for row in x],
        lambda x: x.data + 1,
    ],
)
def test_shapes_are_the_models_own(function):
    check(function, torch.randn(3, 4, 3, 4))


WRITES = {
    "view": lambda y: y.view(y.size(0), -1).mul_(2),
    "view of a view": lambda y: y.view(2, 4, -1)[0].mul_(2),
    "flatten": lambda y: y.flatten(1).mul_(2),
    "part of flatten": lambda y: y.flatten(1).__setitem__((slice(None), 3), 5.0),
    "reshape": lambda y: y.reshape(-1).add_(1),
    "one image": lambda y: y[0].view(-1).mul_(3),
    "part of one image": lambda y: y[0].flatten()[2:5].mul_(3),
    "activated": lambda y: torch.relu_(y.view(-1)),
    "scattered": lambda y: y[1].view(-1).index_fill_(0, torch.tensor([1, 2]), 7.0),
    "no view": lambda y: y.transpose(1, 2).reshape(2, -1).mul_(2),
    "permuted": lambda y: y.permute(0, 2, 3, 1)[..., 0].mul_(2),
}


@pytest.mark.parametrize("name", WRITES)
def test_what_is_written_to_a_view_reaches_the_tensor(name):
    """Also where a layer of ours keeps its result in another order in memory than torch's does."""

    class Writes(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 4, 3)

        def forward(self, x):
            y = self.conv(x)
            WRITES[name](y)
            return y + 1

    check_matches_models(make_models(Writes, 3), torch.randn(3, 2, 3, 6, 6))


def test_assignment_to_a_part():
    def function(x, i):
        y = torch.zeros_like(x)
        y[0] = x[1]
        y[:, 1] = 3.0
        y[2, 1:] = x[0, 1]
        y[:, i] = 1.0
        return y

    check(function, torch.randn(2, 3, 4), torch.tensor([0, 1]), mapped=True)


@pytest.mark.parametrize("B", [1, 3])
def test_a_row_that_is_changed_in_its_place(B):
    def change(x):
        y = x.clone()
        y[0] *= 2
        y[:, 1] += 1
        return y

    check(change, torch.randn(B, 4, 3))


def test_a_mask_picks_as_many_as_it_likes():
    with pytest.raises(InvalidArgument, match="mask"):
        run(lambda x: x[x > 0], torch.randn(2, 5))


def test_a_mask_may_be_written_through():
    def function(x):
        y = x.clone()
        y[y < 0] = 0.0
        return y

    check(function, torch.randn(2, 3, 4))


def test_an_impossible_view_is_an_error():
    with pytest.raises(RuntimeError, match=r"shape"):
        run(lambda x: x.view(5, -1), torch.randn(2, 3, 4))
