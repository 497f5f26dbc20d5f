# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite.errors import InvalidArgument
from dnnsuite.nn.functional._models import each_model, shifted


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
