# SPDX-License-Identifier: MIT
import numpy as np
import pytest
from PIL import Image

from dnnsuite.data import photographs
from dnnsuite.errors import InvalidArgument


def test_the_users_pictures_are_cut_in_the_middle(tmp_path):
    (tmp_path / "class").mkdir()
    picture = np.zeros((40, 80, 3), np.uint8)
    picture[:, 20:60] = 200  # the square in the middle
    Image.fromarray(picture).save(tmp_path / "class" / "a.png")
    found = photographs.load_crops("real", tmp_path, size=16)
    assert found.images.shape == (1, 3, 16, 16)
    assert (found.images > 180).all()  # bicubic, and what lies beside is no part of it


def test_noise_where_nothing_else_is_wanted():
    found, again, other = (photographs.load_crops("synthetic", size=32, count=3, seed=seed) for seed in (1, 1, 2))
    assert found.images.shape == (3, 3, 32, 32)
    assert found.origin.source.startswith("synthetic")
    assert np.array_equal(found.images, again.images)
    assert not np.array_equal(found.images, other.images)


def test_photographs_of_packages_by_default():
    found = photographs.load_crops(size=16, count=5)
    assert found.images.shape == (5, 3, 16, 16)
    assert found.images.std() > 10


def test_a_picture_that_cannot_be_decoded_is_named(tmp_path):
    (tmp_path / "a.png").write_bytes(b"nothing")
    with pytest.raises(InvalidArgument, match=r"a\.png cannot be decoded"):
        photographs.load_crops("auto", tmp_path)
