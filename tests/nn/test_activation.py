# SPDX-License-Identifier: MIT
import pytest
import torch

import dnnsuite
from dnnsuite import nn
from dnnsuite._fuse.layer_table import ELEMENTWISE
from dnnsuite.errors import InvalidArgument
from helpers import check_matches_models, make_models


@pytest.mark.parametrize("layer", ELEMENTWISE, ids=lambda layer: layer.__name__)
def test_elementwise_ones_are_torchs_own(layer):
    arguments = {"threshold": 0.1, "value": -2.0} if layer is torch.nn.Threshold else {}
    models = make_models(lambda: torch.nn.Sequential(torch.nn.LayerNorm(5), layer(**arguments)), 3)
    array = check_matches_models(models, torch.randn(3, 4, 5))
    assert [cover.how for cover in dnnsuite.coverage(array)] == ["fused", "elementwise"]


def test_prelu_of_one_weight_without_channels():
    check_matches_models(make_models(lambda: torch.nn.PReLU(), 3), torch.randn(3, 4))


@pytest.mark.parametrize("make", [torch.nn.PReLU, torch.nn.Softmax, torch.nn.LogSoftmax, torch.nn.Softmin])
def test_a_model_may_give_a_single_number(make):
    arguments = {} if make is torch.nn.PReLU else {"dim": 0}
    check_matches_models(make_models(lambda: make(**arguments), 3), torch.tensor([-1.0, 0.5, 2.0]))


def test_dimensions_count_without_the_model():
    x = torch.randn(2, 3, 4)
    torch.testing.assert_close(nn.Softmax(1, B=2)(x).sum(2), torch.ones(2, 3))
    torch.testing.assert_close(nn.Softmax(0, B=2)(x).sum(1), torch.ones(2, 4))
    with pytest.raises(InvalidArgument, match=r"dim=2 .* \[3, 4\]"):
        nn.Softmax(2, B=2)(x)


def test_softmax2d_refuses_a_matrix():
    with pytest.raises(InvalidArgument, match=r"\[2, 3, 4\]"):
        nn.Softmax2d(B=2)(torch.randn(2, 3, 4))


def test_rrelu_draws_slopes_in_range_and_by_model():
    layer = nn.RReLU(0.1, 0.4, B=3)
    nn.seed(layer, [5, 6, 5])
    x = -torch.ones(3, 1000)
    x[:, :10] = 2.0
    y = layer(x)
    assert torch.equal(y[:, :10], x[:, :10])
    slopes = -y[:, 10:]
    assert slopes.min() >= 0.1
    assert slopes.max() <= 0.4
    assert torch.equal(y[0], y[2])
    assert not torch.equal(y[0], y[1])
    assert not torch.equal(layer(x), y)
    other = nn.RReLU(0.1, 0.4, B=1)
    nn.seed(other, [6])
    assert torch.equal(other(x[1:2])[0], y[1])


def test_rrelu_refuses_bounds():
    with pytest.raises(InvalidArgument, match=r"0\.5"):
        nn.RReLU(0.5, 0.1, B=2)
