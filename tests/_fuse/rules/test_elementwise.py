# SPDX-License-Identifier: MIT
import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from dnnsuite.errors import InvalidArgument
from function_cases import check, run
from helpers import check_matches_models, make_models

ROW, MATRIX = torch.randn(4), torch.randn(3, 4)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.relu().exp() - torch.tanh(x) * 2,
        lambda x: 1 - x / 3 + x**2,
        lambda x: x + ROW,
        lambda x: ROW - x,
        lambda x: x.abs().clamp(0.1, 1.0).sqrt(),
        lambda x: torch.where(x > 0, x, torch.zeros(1)),
        lambda x: x.masked_fill(x < 0, 7.0),
        lambda x: F.logsigmoid(x) + F.logsigmoid(x[0]),
        lambda x: F.leaky_relu(x, 0.2) + F.gelu(x, approximate="tanh") + F.silu(x),
        lambda x: torch.lerp(x, MATRIX, 0.3),
        lambda x: x.double() + 1,
        lambda x: x.to(torch.bfloat16).float(),
        lambda x: torch.maximum(x, ROW) + torch.addcmul(x, x, ROW, value=2),
        lambda x: x.clone().mul_(2).add_(ROW),
        lambda x: F.relu(x.clone(), inplace=True),
        lambda x: torch.zeros_like(x) + torch.ones_like(x),
        lambda x: (x > 0) & ~(x > 1) | (x < -1),
        lambda x: x.detach() + x,
        lambda x: -x @ x.t() % 3,
        lambda x: x + x.sum(),  # a number of each model beside a matrix
        lambda x: x.half() * (x > 9).sum().float(),  # it does not widen the matrix
        lambda x: (x > 0) * x.sum(),
        lambda x: torch.arange(4) * x.sum(),
        lambda x: torch.zeros(2, 3, 4) + x,
        lambda x: x[0] + torch.zeros(2, 3, 4),
        lambda x: MATRIX.half().to(x) * x + MATRIX.half().type_as(x),  # stays one for all models
        lambda x: (ROW.half().to(x), torch.tensor(2).to(x) * x, x.to(MATRIX[None].double()), x[0].type_as(x)),
    ],
)
def test_means_what_it_means_for_one_model(function):
    check(function, torch.randn(3, 3, 4))


def test_two_tensors_of_different_rank():
    check(lambda x, y: x * y + y, torch.randn(2, 3, 4), torch.randn(2, 4))
    check(lambda x, y: y - x, torch.randn(2, 3, 4), torch.randn(2))
    check(lambda x: torch.arange(3, dtype=torch.int32) + (x > 0).sum(), torch.randn(2, 3, 4))


def test_in_place_writes_into_the_same_tensor():
    def function(x):
        y = x.clone()
        view = y[0]
        y += 1
        y *= ROW
        return y, view

    check(function, torch.randn(2, 3, 4))


def test_a_number_that_all_models_share_may_steer():
    check(lambda x: x * 2 if x.shape[0] == 3 and int(torch.ones_like(x).sum()) == 12 else x, torch.randn(2, 3, 4))


class Marks(torch.nn.Module):
    """Counts places by what `where` finds: in all together as many as models, in each another number."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))

    def forward(self, x):
        places = torch.where(x > 0)[0]
        return x * self.scale * (2 if places.numel() == 1 else 3) + places.sum()


def test_where_of_a_condition_alone_is_each_models_own():
    x = torch.tensor([[1.0, -1.0, -1.0], [-1.0, -1.0, -1.0], [-1.0, 1.0, -1.0]], dtype=torch.float64)
    array = check_matches_models(make_models(Marks, 3), x)
    assert "where" in array.coverage()[0].reason


def test_where_of_a_condition_that_all_models_share():
    mask = torch.tensor([True, False, True])
    check(lambda x: x[:, torch.where(mask)[0]] + torch.where(mask)[0].numel(), torch.randn(2, 4, 3))


def test_a_number_that_differs_is_refused_outside_of_a_module():
    with pytest.raises(InvalidArgument, match="differs from model to model"):
        run(lambda x: x * float(x.sum()), torch.randn(2, 3))


def test_a_shared_tensor_cannot_take_what_differs():
    with pytest.raises(InvalidArgument, match="share"):
        run(lambda x: torch.zeros(3).add_(x), torch.randn(2, 3))


def test_a_parameter_of_nobody_is_refused():
    weight = torch.nn.Parameter(torch.randn(3))
    with pytest.raises(InvalidArgument, match="closure"):
        run(lambda x: x * weight, torch.randn(2, 3))


class _Inputs(TorchDispatchMode):
    """Note whether what the sigmoid is given is contiguous."""

    def __init__(self):
        super().__init__()
        self.contiguous = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.sigmoid.default:
            self.contiguous.append(args[0].is_contiguous())
        return func(*args, **(kwargs or {}))


def test_exponentials_of_a_slice_are_of_a_copy_in_one_piece():
    models = torch.randn(3, 3, 4)
    with _Inputs() as inputs:
        check(lambda x: torch.sigmoid(x[:, :2]) + x[:, 1:3].sigmoid() + torch.sigmoid(input=x)[:, :2], models)
    assert inputs.contiguous.count(False) == len(models) * 2  # of the models alone
