# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import nn
from dnnsuite.errors import InvalidArgument
from helpers import check_matches_models, make_models


@pytest.mark.parametrize("leading", [(), (4,), (2, 3)])
@pytest.mark.parametrize("bias", [True, False])
def test_matches_models(leading, bias):
    models = make_models(lambda: torch.nn.Bilinear(3, 5, 4, bias=bias), 2)
    check_matches_models(models, torch.randn(2, *leading, 3), torch.randn(2, *leading, 5))


def test_refuses_what_does_not_fit():
    with pytest.raises(InvalidArgument, match="bilinear takes"):
        nn.Bilinear(3, 5, 4, B=2)(torch.randn(2, 6, 3), torch.randn(2, 6, 4))
    with pytest.raises(InvalidArgument, match="in1_features"):
        nn.Bilinear(0, 5, 4, B=2)
