# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import models


@pytest.mark.parametrize("factor", [2, 3])
def test_the_filters_of_the_last_layer_are_the_pixels_of_the_large_picture(factor):
    model = models.ESPCN(factor)
    x = torch.rand(2, 1, 6, 8)
    features = x
    for place, layer in enumerate(model.convolutions):
        features = torch.nn.functional.conv2d(features, layer.weight, layer.bias, padding=layer.kernel_size[0] // 2)
        features = features.relu() if place < 3 else features
    large = model(x)
    assert large.shape == (2, 1, 6 * factor, 8 * factor)
    for row in range(factor):
        for column in range(factor):
            torch.testing.assert_close(large[:, 0, row::factor, column::factor], features[:, row * factor + column])


def test_its_parameters():
    sizes = [(1, 64, 5), (64, 64, 3), (64, 32, 3), (32, 4, 3)]
    expected = sum(a * b * side**2 + b for a, b, side in sizes)
    assert sum(p.numel() for p in models.ESPCN(2).parameters()) == expected == 58212


def test_it_starts_orthogonal():
    for layer, gain in zip(models.ESPCN(2).convolutions[1:], (2**0.5, 2**0.5, 1), strict=True):
        rows = layer.weight.detach().flatten(1)
        torch.testing.assert_close(rows @ rows.T, gain**2 * torch.eye(len(rows)), rtol=0, atol=1e-5)
