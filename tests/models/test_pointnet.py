# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import models


def test_sizes_of_the_paper():
    model = models.PointNetClassifier(40, feature_transform=True)
    assert model.features.input_transform.matrix.out_features == 9
    assert model.features.feature_transform.matrix.out_features == 64 * 64
    # 0.8 M parameters in the trunk and head, the rest in the two transform networks (Qi et al., table 6: 3.5 M)
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(3.5e6, rel=0.03)


@pytest.mark.parametrize("feature_transform", [False, True])
def test_classifier_and_segmenter(feature_transform):
    x = torch.randn(4, 3, 10)
    logits, matrix = models.PointNetClassifier(5, feature_transform, width=64)(x)
    assert logits.shape == (4, 5)
    points, again = models.PointNetSegmenter(6, feature_transform, width=64)(x)
    assert points.shape == (4, 10, 6)
    for found in (matrix, again):
        assert found.shape == (4, 4, 4) if feature_transform else found is None


def test_order_of_the_points_does_not_matter():
    model = models.PointNetClassifier(5, True, width=64).eval()
    segmenter = models.PointNetSegmenter(5, True, width=64).eval()
    x, order = torch.randn(3, 3, 10), torch.randperm(10)
    torch.testing.assert_close(model(x)[0], model(x[:, :, order])[0])
    torch.testing.assert_close(segmenter(x)[0][:, order], segmenter(x[:, :, order])[0])


def test_transform_starts_near_the_identity():
    net = models.TransformNet(3, width=64)
    torch.nn.init.zeros_(net.matrix.weight)
    torch.nn.init.zeros_(net.matrix.bias)
    torch.testing.assert_close(net(torch.randn(2, 3, 7)), torch.eye(3).expand(2, 3, 3))


def test_orthogonality_loss():
    rotation = torch.linalg.qr(torch.randn(2, 5, 4, 4))[0]
    torch.testing.assert_close(models.orthogonality_loss(rotation), torch.zeros(2), atol=1e-5, rtol=0)
    assert models.orthogonality_loss(2 * torch.eye(4)[None]) == pytest.approx(3 * 4**0.5)
