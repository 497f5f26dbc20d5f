# SPDX-License-Identifier: MIT
import os
import pickle

import numpy as np
import pytest

from dnnsuite.data import cifar
from dnnsuite.errors import InvalidArgument, Unavailable


@pytest.fixture
def pictures():
    draws = np.random.default_rng(3)
    return draws.integers(0, 256, (6, 3, 32, 32), dtype=np.uint8), draws.integers(0, 100, 6)


def write_pickled(folder, images, labels):
    folder.mkdir(parents=True)
    content = {b"data": images.reshape(len(images), -1), b"fine_labels": [int(each) for each in labels]}
    for name in ("train", "test"):
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))


def write_binary(folder, images, labels):
    folder.mkdir(parents=True)
    rows = [b"\0" + bytes([label]) + image.tobytes() for image, label in zip(images, labels, strict=True)]
    for name in ("train.bin", "test.bin"):
        (folder / name).write_bytes(b"".join(rows))


@pytest.mark.parametrize("write", [write_pickled, write_binary])
@pytest.mark.parametrize("place", ["cifar-100-python", "cifar-100-binary", "."])
def test_reads_the_users_files(tmp_path, pictures, write, place):
    root = tmp_path / "data"
    write(root / place, *pictures)
    found = cifar.load("real", root, part="valid")
    assert (found.images == pictures[0]).all()
    assert found.labels.tolist() == pictures[1].tolist()
    assert (found.classes, found.origin.source, found.origin.count) == (100, "CIFAR-100", 6)


class Harmful:
    def __reduce__(self):
        return os.mkdir, ("made-by-a-file",)


@pytest.mark.parametrize(
    "content", [pickle.dumps(Harmful()), b"", b"not a pickle", pickle.dumps({b"data": np.zeros((2, 3072), np.uint8)})]
)
def test_a_damaged_or_harmful_file_is_refused(tmp_path, content, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("train", "test"):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidArgument, match=r"train is not a file of CIFAR-100"):
        cifar.load("auto", tmp_path)
    assert not (tmp_path / "made-by-a-file").exists()


def test_labels_must_be_of_the_pictures(tmp_path, pictures):
    write_pickled(tmp_path / "cifar-100-python", pictures[0], [1, 2, 3])
    with pytest.raises(InvalidArgument, match="6 pictures, 3 labels"):
        cifar.load("auto", tmp_path)


def test_digits_are_enlarged_and_split():
    pytest.importorskip("sklearn")
    train, valid = (cifar.load(part=part) for part in ("train", "valid"))
    assert len(train.labels) + len(valid.labels) == 1797
    assert train.images.shape[1:] == (3, 32, 32)
    assert (train.images[:, 0] == train.images[:, 2]).all()
    assert (train.images[:, :, ::4, ::4] == train.images[:, :, 3::4, 3::4]).all()
    assert "digits" in train.origin.source


def test_synthetic_pictures_have_classes_that_both_parts_share():
    train, valid = (cifar.load("synthetic", seed=5, part=part) for part in ("train", "valid"))
    assert (train.images == cifar.load("synthetic", seed=5).images).all()
    assert not (train.images == cifar.load("synthetic", seed=6).images).all()
    means = np.stack([train.images[train.labels == label].mean(0) for label in range(100)])
    guesses = ((valid.images[:50, None] - means[None]) ** 2).sum((2, 3, 4)).argmin(1)
    assert (guesses == valid.labels[:50]).mean() > 0.9


def test_real_data_that_are_not_there(monkeypatch, tmp_path):
    monkeypatch.setattr(cifar.mnist, "digits_file", lambda: None)
    with pytest.raises(Unavailable, match="CIFAR-100's files"):
        cifar.load("real", tmp_path)
    assert "synthetic" in cifar.load("auto", tmp_path).origin.source
