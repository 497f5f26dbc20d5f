# SPDX-License-Identifier: MIT
import pytest
import torch
from torch.nn import functional as F

from dnnsuite.errors import InvalidArgument
from dnnsuite.nn import functional


@pytest.mark.parametrize("name", ["softmax", "softmin", "log_softmax", "glu", "normalize"])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_each_dimension(name, dim):
    x = torch.randn(3, 2, 6)
    got = getattr(functional, name)(x, dim=dim)
    for model in range(3):
        torch.testing.assert_close(got[model], getattr(F, name)(x[model], dim=dim))


@pytest.mark.filterwarnings("ignore:Implicit dimension")
@pytest.mark.parametrize("shape", [(5,), (4, 5), (3, 4, 5), (2, 3, 4, 5)])
def test_the_dimension_that_torch_takes_unasked(shape):
    x = torch.randn(2, *shape)
    torch.testing.assert_close(functional.softmax(x)[1], F.softmax(x[1]))


def test_gumbel_softmax():
    y = functional.gumbel_softmax(torch.randn(2, 3, 4), hard=True, dim=0)
    assert torch.equal(y.sum(1), torch.ones(2, 4))


def test_prelu_refuses_another_count():
    with pytest.raises(InvalidArgument, match=r"\[2, 5\]"):
        functional.prelu(torch.randn(2, 3, 4), torch.randn(2, 5))
