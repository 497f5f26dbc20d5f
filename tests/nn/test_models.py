# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite.errors import InvalidArgument
from dnnsuite.nn._models import each_model, shifted, stack_models


def test_each_model_passes_on_what_is_there():
    x, w = torch.randn(3, 4), torch.randn(3, 4)
    assert torch.equal(each_model(lambda a, b, c: a * b if c is None else a, x, w, None), x * w)
    assert each_model(torch.relu, x[:0]).shape == (0, 4)
    assert each_model(torch.relu, x[:1]).shape == (1, 4)


def test_dimensions_shift():
    x = torch.randn(2, 3, 4)
    assert [shifted(dim, x, "f") for dim in (-2, -1, 0, 1)] == [-2, -1, 1, 2]
    with pytest.raises(InvalidArgument, match="dim=-3"):
        shifted(-3, x, "f")


def test_no_models_have_the_shape_of_one():
    assert each_model(lambda x: x.repeat(1, 2), torch.randn(0, 3, 4)).shape == (0, 3, 8)


def test_gradients_come_back_as_one_stack():
    x = torch.randn(3, 4, requires_grad=True)
    each_model(lambda a: 2 * a, x).sum().backward()
    assert torch.equal(x.grad, torch.full((3, 4), 2.0))


def test_the_order_in_memory_stays():
    parts = [torch.randn(2, 5, 5, 4).movedim(-1, 1) for _ in range(3)]
    y = stack_models(parts)
    assert torch.equal(y, torch.stack(parts))
    assert y.movedim(2, -1).is_contiguous()
    assert stack_models([torch.randn(2, 4, 5) for _ in range(2)]).is_contiguous()
