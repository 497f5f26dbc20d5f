# SPDX-License-Identifier: MIT
import copy
import io

import pytest
import torch

from dnnsuite import nn


def mlp(nn, width=8):
    return nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.LayerNorm(width), nn.Linear(width, 3))


def test_one_definition_serves_a_plain_model_and_an_array():
    assert mlp(nn.array(0))(torch.randn(5, 6)).shape == (5, 3)
    assert mlp(nn.array(4))(torch.randn(4, 5, 6)).shape == (4, 5, 3)
    assert all(type(m).__module__.startswith("torch.") for m in mlp(nn.array(0)))


def test_says_what_it_lacks():
    with pytest.raises(AttributeError, match=r"no AdaptiveLogSoftmaxWithLoss.*; it has .*AvgPool1d and \d+ more"):
        nn.array(2).AdaptiveLogSoftmaxWithLoss  # noqa: B018


def test_arrays_copy_and_pickle():
    array = mlp(nn.array(3))
    x = torch.randn(3, 5, 6)
    assert torch.equal(copy.deepcopy(array)(x), array(x))
    file = io.BytesIO()
    torch.save(array, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(x), array(x))


def test_repr_names_the_width():
    assert "in_features=6, out_features=4, bias=True, B=3" in repr(nn.Linear(6, 4, B=3))
