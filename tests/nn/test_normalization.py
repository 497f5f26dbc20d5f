# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import nn
from dnnsuite.errors import InvalidArgument
from helpers import check_matches_models, make_models


@pytest.mark.parametrize("shape", [(6,), (3, 4), 5, (128,), (200,)])
@pytest.mark.parametrize("affine", [{}, {"elementwise_affine": False}, {"bias": False}])
def test_matches_models(shape, affine, device):
    models = make_models(lambda: torch.nn.LayerNorm(shape, **affine), 3, device=device)
    trailing = (shape,) if isinstance(shape, int) else shape
    check_matches_models(models, torch.randn(3, 4, 2, *trailing, device=device))


def test_double_with_its_own_eps():
    models = make_models(lambda: torch.nn.LayerNorm(6, eps=1e-2), 2, torch.float64)
    check_matches_models(models, torch.randn(2, 5, 6, dtype=torch.float64))


def test_far_from_zero_loses_no_digits():
    """One-pass variance, E[x²] - E[x]², would be wrong by whole units here."""
    x = 1000 + torch.randn(2, 5, 64)
    expected = torch.nn.functional.layer_norm(x.double(), (64,))
    assert (nn.LayerNorm(64, B=2)(x) - expected).abs().max() < 2e-3


def test_refuses_another_width():
    with pytest.raises(InvalidArgument, match=r"\[6\].*\[2, 4, 5\]"):
        nn.LayerNorm(6, B=2)(torch.randn(2, 4, 5))
