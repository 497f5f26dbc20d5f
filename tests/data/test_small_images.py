# SPDX-License-Identifier: MIT
import pickle

import numpy as np
import pytest

from dnnsuite.data import cifar
from dnnsuite.errors import InvalidArgument

PIXELS = np.random.default_rng(0).integers(256, size=(6, 3072), dtype=np.uint8)
LABELS = [0, 9, 3, 3, 1, 2]


def write_binary(folder):
    folder = folder / "cifar-10-batches-bin"
    folder.mkdir()
    rows = np.concatenate([np.array(LABELS, np.uint8)[:, None], PIXELS], axis=1)
    rows[:3].tofile(folder / "data_batch_1.bin")
    rows[3:].tofile(folder / "data_batch_2.bin")
    return folder


def write_pickled(folder):
    folder = folder / "cifar-10-batches-py"
    folder.mkdir()
    with (folder / "data_batch_1").open("wb") as file:
        pickle.dump({b"data": PIXELS, b"labels": LABELS}, file, protocol=2)
    return folder


@pytest.mark.parametrize("write", [write_binary, write_pickled])
def test_reads_both_forms_of_cifar(write, tmp_path):
    write(tmp_path)
    found = cifar.load_cifar10("real", tmp_path)
    assert np.array_equal(found.images, PIXELS.reshape(6, 3, 32, 32))
    assert found.labels.tolist() == LABELS
    assert "CIFAR-10" in found.origin.source


def test_real_pictures_without_a_dataroot_or_drawn_ones():
    found = cifar.load_cifar10("synthetic", seed=3)
    assert found.images.shape[1:] == (3, 32, 32)
    assert set(found.labels.tolist()) == set(range(10))
    assert not found.images[:, :, :2].any()  # the margin


def test_damaged_files_are_named(tmp_path):
    (write_binary(tmp_path) / "data_batch_1.bin").write_bytes(b"123")
    with pytest.raises(InvalidArgument, match=r"data_batch_1\.bin is not a file of CIFAR-10"):
        cifar.load_cifar10("auto", tmp_path)


def test_a_pickle_that_would_run_something_is_refused(tmp_path):
    path = write_pickled(tmp_path) / "data_batch_1"
    path.write_bytes(pickle.dumps({b"data": print}))
    with pytest.raises(InvalidArgument, match=r"is not a file of CIFAR-10: it asks for builtins\.print"):
        cifar.load_cifar10("auto", tmp_path)
    path.write_bytes(b"\x80\x04nonsense")
    with pytest.raises(InvalidArgument, match="is not a file of CIFAR-10"):
        cifar.load_cifar10("auto", tmp_path)
