# SPDX-License-Identifier: MIT
import numpy as np
import pytest
from PIL import Image

from dnnsuite import data
from dnnsuite.data import photographs, super_resolution
from dnnsuite.errors import InvalidArgument, Unavailable


@pytest.fixture
def nothing_installed(monkeypatch):
    monkeypatch.setattr(photographs, "shipped", lambda: None)


def write(folder, count, size=(321, 300), seed=0):
    folder.mkdir(parents=True, exist_ok=True)
    noise = photographs.Noise(seed)
    for i in range(count):
        Image.fromarray(noise.picture(size[1], size[0])).save(folder / f"{i}.jpg")


@pytest.mark.parametrize("folder", [".", "BSR/BSDS500/data/images", "bsds500/BSR/BSDS500/data/images"])
def test_reads_bsds(tmp_path, folder):
    write(tmp_path / folder / "train", 3)
    write(tmp_path / folder / "test", 2, seed=1)
    train, test, origin = super_resolution.load("real", tmp_path)
    assert train.high.shape == (3, 256, 256)
    assert train.low.shape == (3, 128, 128)
    assert test.high.shape == (2, 256, 256)
    assert origin.count == 3
    assert origin.source.endswith("train/*")


@pytest.mark.parametrize("size", [(321, 300), (481, 257), (200, 300), (255, 255)])
@pytest.mark.parametrize("factor", [2, 3])
def test_transforms_as_the_original(tmp_path, size, factor):
    write(tmp_path / "train", 1, size)
    write(tmp_path / "test", 1, size)
    train, _, _ = super_resolution.load("real", tmp_path, factor)
    data.import_torchvision()
    from torchvision.transforms import v2

    luminance = Image.open(tmp_path / "train/0.jpg").convert("YCbCr").split()[0]
    crop = 256 - 256 % factor
    high = v2.CenterCrop(crop)(luminance)
    assert np.array_equal(train.high[0], np.asarray(high))
    assert np.array_equal(train.low[0], np.asarray(v2.Resize(crop // factor)(high)))


def test_loose_pictures_are_parted(tmp_path):
    write(tmp_path, 9, size=(64, 64))
    train, test, _ = super_resolution.load("auto", tmp_path, crop=32)
    assert (len(train.high), len(test.high)) == (7, 2)


def test_a_damaged_picture_is_named(tmp_path):
    write(tmp_path / "train", 2, size=(64, 64))
    write(tmp_path / "test", 1, size=(64, 64))
    (tmp_path / "train/1.jpg").write_bytes(b"nothing")
    with pytest.raises(InvalidArgument, match=r"train/1\.jpg cannot be decoded"):
        super_resolution.load("auto", tmp_path, threads=2)


def test_photographs_of_a_package_are_cut_into_tiles(monkeypatch, tmp_path):
    write(tmp_path, 2, size=(130, 70))
    origin = super_resolution.Origin("two", "CC0", 2)
    monkeypatch.setattr(photographs, "shipped", lambda: (photographs.files(tmp_path), origin))
    train, test, found = super_resolution.load("auto", crop=32)
    assert len(train.high) + len(test.high) == 2 * 4 * 2
    assert found.source == "tiles of two"
    first = np.asarray(Image.open(tmp_path / "0.jpg").convert("YCbCr").split()[0])
    assert np.array_equal(test.high[0], first[:32, :32])
    assert np.array_equal(train.high[0], first[:32, 32:64])


@pytest.mark.usefixtures("nothing_installed")
def test_without_any_file_they_are_drawn_from_the_seed(tmp_path):
    first, again, other = (super_resolution.load("auto", tmp_path, crop=64, seed=seed) for seed in (1, 1, 2))
    assert first[2].source == "synthetic: 1/f noise, seed 1"
    assert first[2] == again[2]
    assert first[2].sha256 != other[2].sha256


@pytest.mark.usefixtures("nothing_installed")
def test_real_pictures_are_not_replaced_by_others():
    with pytest.raises(Unavailable, match="give a dataroot with BSDS500"):
        super_resolution.load("real")


def test_a_factor_that_makes_no_picture_is_refused():
    with pytest.raises(InvalidArgument, match="upscale factor 0"):
        super_resolution.load(factor=0)
