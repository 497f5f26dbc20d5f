# SPDX-License-Identifier: MIT
import numpy as np
import pytest

from dnnsuite.data import point_clouds
from dnnsuite.errors import InvalidArgument, Unavailable


def test_solids_have_sixteen_classes_in_the_unit_ball():
    clouds = point_clouds.solids(count=32, points=200, seed=3)
    assert clouds.points.shape == (32, 3, 200)
    assert sorted(set(clouds.labels.tolist())) == list(range(16))
    radius = np.linalg.norm(clouds.points, axis=1)
    assert 0.9 < radius.max() < 1.2  # shaken by 0.02
    assert np.abs(clouds.points.mean(2)).max() < 0.02
    assert "16 analytic solids" in clouds.origin.source


def test_a_sphere_is_round_and_even():
    clouds = point_clouds.solids(count=16, points=4000, seed=1)
    sphere = clouds.points[point_clouds.SOLIDS.index("sphere")]
    heights = np.histogram(sphere[1] / np.abs(sphere[1]).max(), bins=4, range=(-1, 1))[0]
    assert heights.min() > 0.2 * 4000  # equal zones have equal areas


def test_chairs_have_four_parts_that_lie_apart():
    clouds = point_clouds.chairs(count=8, points=500, seed=2)
    assert clouds.labels.shape == (8, 500)
    for cloud, labels in zip(clouds.points, clouds.labels, strict=True):
        assert set(labels.tolist()) == {0, 1, 2, 3}
        height = [cloud[1, labels == part].mean() for part in range(4)]
        assert height[2] < height[0] < height[3]  # legs below the seat below the arms
        assert height[0] < height[1]


def test_follow_the_seed():
    first, again, other = (point_clouds.solids(count=4, points=16, seed=seed).origin.sha256 for seed in (1, 1, 2))
    assert first == again != other


def test_refusals():
    with pytest.raises(InvalidArgument, match="'zz' is not one of"):
        point_clouds.solids("zz")
    with pytest.raises(InvalidArgument, match="got 0 of 4"):
        point_clouds.chairs(count=0, points=4)
    with pytest.raises(Unavailable, match="ShapeNet part: --dataroot"):
        point_clouds.solids("real")
