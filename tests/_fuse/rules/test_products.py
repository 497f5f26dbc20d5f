# SPDX-License-Identifier: MIT
import pytest
import torch

from function_cases import check

MATRIX, BATCHED = torch.randn(4, 3), torch.randn(5, 4, 3)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x @ y.t(),
        lambda x, y: x @ MATRIX,
        lambda x, y: MATRIX.t() @ x.t(),
        lambda x, y: x @ y[0],
        lambda x, y: y[0] @ x.t(),
        lambda x, y: y[0] @ y[1],
        lambda x, y: torch.matmul(x, BATCHED),
        lambda x, y: x.unflatten(0, (2, 3)) @ y.t(),
        lambda x, y: x.unflatten(0, (2, 3)).transpose(0, 1) @ y.t(),
        lambda x, y: x.unflatten(0, (2, 1, 3)) @ y[0],
        lambda x, y: BATCHED @ y[:3],
        lambda x, y: x.unflatten(0, (2, 3)) @ MATRIX,
        lambda x, y: x.unflatten(0, (2, 3))[:0] @ y.t(),
        lambda x, y: torch.bmm(x.unsqueeze(0), y.t().unsqueeze(0)),
        lambda x, y: torch.mm(x, y.t()),
        lambda x, y: torch.addmm(y[:, 0], x, y.t(), beta=0.5, alpha=2.0),
        lambda x, y: x[:, :1].repeat(1, 6).addmm_(x, y.t()),
        lambda x, y: torch.einsum("ij,kj->ik", x, y),
        lambda x, y: torch.einsum("ij, kj", x, y),
        lambda x, y: torch.einsum("...i,ij->...j", x, MATRIX),
        lambda x, y: torch.einsum("ij->ji", [x]) if False else torch.einsum("ij->ji", x),
    ],
)
def test_products_of_each_model(function):
    check(function, torch.randn(3, 6, 4), torch.randn(3, 6, 4))


NAN = float("nan")


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: torch.addmm(torch.full((6, 6), NAN), x, y.t(), beta=0, alpha=0.5),
        lambda x, y: torch.baddbmm(torch.full((1, 6, 6), NAN), x[None], y.t()[None], beta=0.0, alpha=0.5),
        lambda x, y: torch.addr(x, x[:, 0], y[0], beta=0) + torch.addr(x, x[:, 0], y[0], beta=0.5, alpha=2),
        lambda x, y: torch.addr(x * 0 + NAN, y[:, 0], y[0], beta=0.0),
        lambda x, y: torch.addbmm(x[:, :1] * 0 + NAN, y[None], y.t()[None], beta=0).sum(1),
        lambda x, y: torch.addbmm(x[:, :1], y[None], x.t()[None]),
        lambda x, y: torch.addmv(x[:, 0] * 0 + NAN, y, x[0], beta=0),
        lambda x, y: torch.addmv(x[:, 0], y, x[0], beta=2, alpha=-1),
    ],
)
def test_what_is_multiplied_by_zero_is_not_read_and_has_gradients_of_zeros(function):
    """`torch.baddbmm(torch.empty(...), queries, keys, beta=0)` is the attention of many language models."""
    check(function, torch.randn(3, 6, 4), torch.randn(3, 6, 4))
