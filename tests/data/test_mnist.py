# SPDX-License-Identifier: MIT
import gzip
import sys

import numpy as np
import pytest

from dnnsuite import data
from dnnsuite.data import mnist
from dnnsuite.errors import InvalidArgument, Unavailable


@pytest.fixture
def nothing_installed(monkeypatch, tmp_path):
    monkeypatch.setattr(mnist, "DEBIAN", tmp_path / "not-here")
    monkeypatch.setitem(sys.modules, "sklearn", None)


def idx(array):
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


def write(folder, part="train", n=5, zipped=False, sign="-"):
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(n)
    arrays = rng.integers(256, size=(n, 28, 28), dtype=np.uint8), rng.integers(10, size=n, dtype=np.uint8)
    for name, array in zip((f"images{sign}idx3", f"labels{sign}idx1"), arrays, strict=True):
        path = folder / f"{part}-{name}-ubyte{'.gz' if zipped else ''}"
        path.write_bytes(gzip.compress(idx(array)) if zipped else idx(array))
    return arrays


@pytest.mark.parametrize("folder", [".", "MNIST/raw", "mnist/MNIST/raw"])
@pytest.mark.parametrize("zipped", [False, True])
def test_reads_the_files_of_a_user(tmp_path, folder, zipped):
    images, labels = write(tmp_path / folder, zipped=zipped)
    write(tmp_path / folder, "t10k", n=3, zipped=zipped)
    pictures = mnist.load("real", tmp_path)
    assert np.array_equal(pictures.images, images)
    assert np.array_equal(pictures.labels, labels)
    assert pictures.origin.count == 5
    assert "train-images-idx3-ubyte" in pictures.origin.source
    assert len(mnist.load("real", tmp_path, train=False).images) == 3


def test_reads_as_torchvision_does(tmp_path):
    write(tmp_path / "MNIST/raw")
    data.import_torchvision()
    from torchvision.datasets.mnist import read_sn3_pascalvincent_tensor

    path = tmp_path / "MNIST/raw/train-images-idx3-ubyte"
    assert np.array_equal(mnist.read_idx(path), read_sn3_pascalvincent_tensor(str(path)).numpy())


def test_also_with_the_dots_that_some_copies_have_in_their_names(tmp_path):
    images, _ = write(tmp_path, sign=".")
    assert np.array_equal(mnist.load("real", tmp_path).images, images)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: content[:-1], r"images-idx3-ubyte should hold \[5, 28, 28\].* has 3919"),
        (lambda content: content + b"x", "has 3921"),
        (lambda content: content[:9], "should hold"),
        (lambda content: b"<html>", "is not an IDX file of bytes: it begins with '3c 68 74 6d'"),
        (lambda content: b"", "is not an IDX file"),
        (lambda content: idx(np.zeros((5, 28), np.uint8)), r"images \[5, 28\], not \[N, 28, 28\]"),
        (lambda content: idx(np.zeros((4, 28, 28), np.uint8)), r"labels \[5\] for 4 images of"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, damage, message):
    write(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InvalidArgument, match=message) as error:
        mnist.load("auto", tmp_path)
    assert str(path) in str(error.value)


def test_a_damaged_compressed_file_is_named(tmp_path):
    write(tmp_path, zipped=True)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InvalidArgument, match=r"train-images-idx3-ubyte\.gz cannot be read"):
        mnist.load("real", tmp_path)


def test_debians_fashion_mnist():
    if not mnist.DEBIAN.is_dir():
        pytest.skip("apt-get install dataset-fashion-mnist")
    pictures, test = mnist.load("real"), mnist.load("real", train=False)
    assert pictures.images.shape == (60000, 28, 28)
    assert test.images.shape == (10000, 28, 28)
    assert np.bincount(pictures.labels).tolist() == [6000] * 10
    assert pictures.origin.licence == "MIT"


def test_the_digits_of_scikit_learn():
    datasets = pytest.importorskip("sklearn.datasets", reason="pip install scikit-learn")
    known = datasets.load_digits()
    train, test = (mnist.digits(mnist.digits_file(), part) for part in (True, False))
    assert len(train.images) + len(test.images) == len(known.images)
    assert np.array_equal(test.labels, known.target[::8])
    assert np.array_equal(test.images[:, 3:26:3, 3:26:3], np.minimum(known.images[::8] * 16, 255))


@pytest.mark.usefixtures("nothing_installed")
def test_without_any_file_they_are_drawn_from_the_seed(tmp_path):
    first, again, other = (mnist.load("auto", tmp_path, seed) for seed in (1, 1, 2))
    assert first.origin.source.startswith("synthetic")
    assert first.origin == again.origin
    assert first.origin.sha256 != other.origin.sha256
    test = mnist.load("synthetic", seed=1, train=False)
    same = np.stack([first.images[first.labels == label].mean(0) for label in range(10)])
    mine = np.stack([test.images[test.labels == label].mean(0) for label in range(10)])
    distance = ((same[:, None] - mine[None]) ** 2).sum((2, 3))
    assert distance.argmin(0).tolist() == list(range(10))  # the test part has the classes of the other


@pytest.mark.usefixtures("nothing_installed")
def test_real_pictures_are_not_replaced_by_others():
    with pytest.raises(Unavailable, match=r"train-images-idx3-ubyte.*apt-get install dataset-fashion-mnist"):
        mnist.load("real")
