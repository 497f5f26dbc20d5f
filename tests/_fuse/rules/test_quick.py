# SPDX-License-Identifier: MIT
"""Usual calls of torch's functions, and calls that look like them and are not."""

import pytest
import torch
from torch.nn import functional as F

from function_cases import check
from helpers import check_matches_models, make_models


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + x * 2 - 1.5 / (x + 9),
        lambda x: (x.exp(), torch.rsqrt(x.abs() + 1), -x, x.neg(), x.sigmoid(), torch.tanh(x)),
        lambda x: torch.clamp(x, -0.1, 0.2) + x.clamp(0, None),
        lambda x: F.hardtanh(x.clone(), -0.1, 0.1, True),
        lambda x: F.relu(x.clone(), True) + F.relu(x[:, None]),
        lambda x: x[0] + x[0, 0] + (x[0, 0] > 0),
        lambda x: (x.to(torch.float64), x.to(torch.float32), x.float(), x.double().float(), x.cpu()),
        lambda x: (x.view(-1), x.view(12), x.reshape((2, 6)), x.view([2, -1]), x.t().reshape(4, 3), x.view(x.shape)),
        lambda x: (x[0], x[1:], x[:, 1:3], x[..., None], x[None], x[-1, ::2], x[...]),
        lambda x: (x.transpose(0, 1), x.transpose(-1, -2), torch.swapdims(x, 0, -1), x.t().contiguous()),
        lambda x: (x.unsqueeze(0), x.unsqueeze(-1), x.unsqueeze(2), x.permute(1, 0), x.permute(-1, 0)),
        lambda x: (x @ x.t(), x.t() @ x, torch.matmul(x, x[0]), x[None] @ x.t(), x[None, None] @ x.t()),
        lambda x: (x.sum(), x.mean(), x.std(), x.var(), (x > 0).all(), (x > 0).any(), x.amax(), x[0].mean()),
        lambda x: (x.sum(0), x.mean(-1), x.mean(-1, keepdim=True), x.sum(dim=1), x.mean(dim=(0, 1)), x.var(0)),
        lambda x: (torch.max(x, x * 2), x.max(1).values, torch.max(x), x.sum(0, True)),
        lambda x: (x[0, 0].unsqueeze(0), x[0, 0].view(1, 1), x[0, 0].sum(), x[0, 0].mean()),
        lambda x: x.detach().view(torch.int32),
        lambda x: torch.ones(3, 4) * 2 + x * torch.ones(3, 4).sum(0),
    ],
)
def test_usual_and_other_calls_mean_what_they_mean_for_one_model(function):
    check(function, torch.randn(3, 3, 4))


def test_what_changes_nothing_returns_the_tensor_itself():
    class Model(torch.nn.Module):
        def forward(self, x):
            y = x * 1
            same = (y.float() is y, y.to(torch.float32) is y, y.contiguous() is y, y.t().contiguous() is y)
            assert same == (True, True, True, False)
            y.contiguous().mul_(2)  # of the tensor itself, as in torch
            return y

    check_matches_models(make_models(Model, 3), torch.randn(3, 2, 4))


def test_shapes_are_known_after_functions_in_place_have_changed_them():
    class Model(torch.nn.Module):
        def forward(self, x):
            y = x * 1
            y.transpose_(0, 1)
            shapes = [tuple(y.shape), y.dim(), y.size(0)]
            y.unsqueeze_(0)
            shapes += [tuple(y.shape), y.dim()]
            y.squeeze_(0)
            y.t_()
            shapes += [tuple(y.shape), len(y)]
            assert shapes == [(4, 2), 2, 4, (1, 4, 2), 3, (2, 4), 2]
            return y.view(y.size(0), -1)

    check_matches_models(make_models(Model, 3), torch.randn(3, 2, 4))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x.transpose(0, -3),
        lambda x: x.unsqueeze(-4),
        lambda x: x.sum(2),
        lambda x: x.permute(0, -3),
        lambda x: x.view(5, -1),
        lambda x: x[2],
    ],
)
def test_dimensions_of_the_array_are_out_of_reach(wrong):
    class Model(torch.nn.Module):
        def forward(self, x):
            try:
                wrong(x)
            except (IndexError, RuntimeError):
                return x
            return x * 0

    check_matches_models(make_models(Model, 3), torch.randn(3, 2, 4) + 5)
