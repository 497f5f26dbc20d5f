# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite.nn import functional

NAMES = ["l1_loss", "mse_loss", "smooth_l1_loss", "huber_loss", "poisson_nll_loss"]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", NAMES)
def test_matches_torch(name, reduction):
    x, y = torch.randn(3, 4, 5), torch.rand(3, 4, 5)
    got = getattr(functional, name)(x, y, reduction=reduction)
    for model in range(3):
        expected = getattr(torch.nn.functional, name)(x[model], y[model], reduction=reduction)
        torch.testing.assert_close(got[model], expected)


def test_broadcasts_as_for_one_model():
    """torch warns and computes [N, N]; model by model it is the same."""
    x, y = torch.randn(2, 4, 1), torch.randn(2, 4)
    with pytest.warns(UserWarning, match="broadcast"):
        got = functional.mse_loss(x, y)
    with pytest.warns(UserWarning, match="broadcast"):
        torch.testing.assert_close(got[1], torch.nn.functional.mse_loss(x[1], y[1]))


@pytest.mark.parametrize("log_target", [False, True])
def test_divergence(log_target):
    x, y = torch.randn(2, 4, 5).log_softmax(-1), torch.randn(2, 4, 5).softmax(-1)
    y = y.log() if log_target else y
    got = functional.kl_div(x, y, reduction="batchmean", log_target=log_target)
    for model in range(2):
        expected = torch.nn.functional.kl_div(x[model], y[model], reduction="batchmean", log_target=log_target)
        torch.testing.assert_close(got[model], expected)


@pytest.mark.parametrize("var", [0.5, (2, 4, 5), (2, 4), (2, 4, 1)])
def test_variances(var):
    x, y = torch.randn(2, 4, 5), torch.randn(2, 4, 5)
    var = torch.rand(var) if isinstance(var, tuple) else var
    got = functional.gaussian_nll_loss(x, y, var)
    for model in range(2):
        own = var[model] if isinstance(var, torch.Tensor) else var
        torch.testing.assert_close(got[model], torch.nn.functional.gaussian_nll_loss(x[model], y[model], own))
