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
