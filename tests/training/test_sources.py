# SPDX-License-Identifier: MIT
import numpy as np
import pytest
import torch
from PIL import Image

from dnnsuite._runs.identity import identity_of
from dnnsuite.errors import InvalidArgument, Unavailable
from dnnsuite.training import Settings, find_data
from dnnsuite.training.sources import compared


def folders(root, train=3, valid=2, classes=("ant", "bee", "cat")):
    draws = np.random.default_rng(0)
    for part, count in (("train", train), ("val", valid)):
        for name in classes:
            (root / part / name).mkdir(parents=True)
            for i in range(count):
                pixels = draws.integers(0, 256, (40, 50, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / part / name / f"{i}.jpg")
    return root


def test_a_folder_of_classes(tmp_path):
    data = find_data(Settings(image_size=32, num_classes=3), folders(tmp_path))
    assert (len(data.train), len(data.valid), data.classes) == (9, 6, 3)
    image, label = data.train[8]
    assert (image.shape, label) == ((3, 32, 32), 2)
    torch.manual_seed(0)
    first = data.train[0][0]
    torch.manual_seed(1)
    assert not torch.equal(first, data.train[0][0])
    assert torch.equal(data.valid[0][0], data.valid[0][0])
    assert "3 classes" in data.source


def test_a_part_of_a_folder_has_all_classes(tmp_path):
    data = find_data(Settings(image_size=8, max_train_samples=3), folders(tmp_path))
    assert [data.train[i][1] for i in range(len(data.train))] == [0, 1, 2]


def test_folders_are_compared_by_the_names_of_their_pictures_wherever_they_lie(tmp_path):
    def told(root):
        data = find_data(Settings(image_size=8), root)
        return identity_of({"train": compared(data.train), "valid": compared(data.valid)}).texts

    root = folders(tmp_path / "here")
    first = told(root)
    moved = root.rename(tmp_path / "there")
    assert told(moved) == first
    (moved / "train" / "ant" / "1.jpg").rename(moved / "train" / "bee" / "9.jpg")
    assert {name for name, text in told(moved).items() if text != first[name]} == {"train"}


def test_folders_that_do_not_do(tmp_path):
    root = folders(tmp_path)
    with pytest.raises(InvalidArgument, match=r"num_classes is 2, and .* has 3: set num_classes=3"):
        find_data(Settings(num_classes=2), root)
    (root / "train" / "dog").mkdir()
    with pytest.raises(InvalidArgument, match="dog has no images"):
        find_data(Settings(), root)
    (root / "train" / "dog").rmdir()
    (root / "val" / "cat").rename(root / "val" / "cow")
    with pytest.raises(InvalidArgument, match="have other classes: cat is in one"):
        find_data(Settings(), root)
    (root / "val").rename(root / "elsewhere")
    with pytest.raises(Unavailable, match="validation images beside"):
        find_data(Settings(), root)


def test_a_damaged_picture_is_named(tmp_path):
    root = folders(tmp_path)
    (root / "train" / "ant" / "0.jpg").write_bytes(b"\xff\xd8 no picture")
    data = find_data(Settings(image_size=8), root)
    with pytest.raises(InvalidArgument, match=r"ant/0\.jpg cannot be decoded"):
        data.train[0]


def test_pictures_in_memory_say_what_they_are(tmp_path):
    data = find_data(Settings(data="synthetic", max_train_samples=10))
    assert len(data.train) == 10
    assert data.source.startswith("synthetic")
    with pytest.raises(InvalidArgument, match="32 x 32 pixels"):
        find_data(Settings(data="synthetic", image_size=64))
    with pytest.raises(InvalidArgument, match="is not a folder"):
        find_data(Settings(), tmp_path / "gone")


def test_a_data_path_that_is_not_there_is_passed_by():
    assert find_data(Settings(data_path="/nowhere/at/all")).source == find_data(Settings(data_path=None)).source


def test_class_folders_that_are_all_empty_are_not_passed_over(tmp_path):
    (tmp_path / "train" / "cat").mkdir(parents=True)
    with pytest.raises(InvalidArgument, match=r"train has no images in folders of classes"):
        find_data(Settings(), tmp_path)
