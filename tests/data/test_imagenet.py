# SPDX-License-Identifier: MIT
import numpy as np
import pytest
import torch
from PIL import Image

from dnnsuite.data import imagenet, photographs
from dnnsuite.errors import InvalidArgument, Unavailable


def write(folder, classes=2, each=3):
    noise = photographs.Noise()
    for c in range(classes):
        (folder / f"n{c}").mkdir(parents=True)
        for i in range(each):
            Image.fromarray(noise.picture(40, 60)).save(folder / f"n{c}" / f"{i}.JPEG")
    return folder


@pytest.mark.parametrize("place", ["ImageNet/train", "train", "."])
def test_finds_the_folder_of_classes(tmp_path, place):
    write(tmp_path / place)
    (tmp_path / place / "readme.txt").touch()
    assert imagenet.find("auto", tmp_path) == tmp_path / place
    assert imagenet.find("synthetic", tmp_path) is None


def test_without_one_only_real_images_are_missed(tmp_path):
    (tmp_path / "empty").mkdir()
    assert imagenet.find("auto", tmp_path) is None
    assert imagenet.find("auto") is None
    with pytest.raises(Unavailable, match=r"looked in .*ImageNet/train.*give a dataroot that holds"):
        imagenet.find("real", tmp_path)


def test_a_damaged_image_is_named(tmp_path):
    write(tmp_path)
    (tmp_path / "n1/2.JPEG").write_bytes(b"\xff\xd8\xff\xe0 nothing")
    for workers in (0, 1):
        with pytest.raises(InvalidArgument, match=r"n1/2\.JPEG cannot be decoded") as error:
            imagenet.pool("auto", tmp_path, 6, 1, size=8, workers=workers)
        assert "Traceback" not in str(error.value)


def test_what_has_no_classes_is_named(tmp_path):
    with pytest.raises(InvalidArgument, match="is not a folder of classes with images"):
        imagenet.folder(tmp_path, None)


def test_the_pool_has_the_middle_of_the_pictures(tmp_path):
    write(tmp_path, classes=1, each=1)
    ((images, classes),), origin = imagenet.pool("real", tmp_path, 1, 1, size=40)
    expected = np.asarray(Image.open(tmp_path / "n0/0.JPEG"))[:, 10:50]
    np.testing.assert_allclose(images[0].permute(1, 2, 0) * 255, expected, atol=1e-3)
    assert classes.tolist() == [0]
    assert (origin.count, origin.source.endswith("1 classes, 1 of 1 used")) == (1, True)


@pytest.mark.parametrize("workers", [0, 1])
def test_augmentation_is_random_and_from_the_seed(tmp_path, workers):
    write(tmp_path, classes=1, each=1)
    first, again, other = (
        imagenet.pool("real", tmp_path, 2, 1, size=16, augment=True, seed=seed, workers=workers).batches[0][0]
        for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first[0], first[1])  # one file, cut in two ways


def test_without_files_of_ones_own_it_is_parts_of_photographs():
    first, again = (imagenet.pool("auto", None, 3, 2, size=8, seed=1) for _ in range(2))
    assert first.origin.source == "parts of photographs of the package skimage"
    images, classes = first.batches[0]
    assert images.shape == (3, 3, 8, 8)
    assert classes.tolist() == [0, 1, 2]
    assert torch.equal(images, again.batches[0][0])
    monotonous = images.flatten(1).std(1) < 0.001
    assert not monotonous.all()


def test_a_stream_decodes_files_without_end(tmp_path):
    write(tmp_path, classes=2, each=2)
    loader, origin = imagenet.stream("real", tmp_path, 3, 16, augment=True)
    try:
        batches = [next(loader) for _ in range(3)]
    finally:
        loader.close()
    assert [images.shape for images, _ in batches] == [(3, 3, 16, 16)] * 3
    assert origin.count == 4


def test_without_files_it_is_noise():
    pools = [
        imagenet.pool("synthetic", None, 3, 2, size=8, seed=seed, rank=rank, world_size=2)
        for seed, rank in [(1, 0), (1, 0), (1, 1), (2, 0)]
    ]
    assert pools[0].origin.source == "synthetic: uniform noise, seed 1"
    images = [pool.batches[0][0] for pool in pools]
    assert images[0].shape == (3, 3, 8, 8)
    assert torch.equal(images[0], images[1])
    assert not torch.equal(images[0], images[2])
    assert not torch.equal(images[0], images[3])
    assert not torch.equal(images[0], pools[0].batches[1][0])


def test_processes_get_other_images(tmp_path):
    write(tmp_path)
    halves = [imagenet.pool("real", tmp_path, 3, 1, size=8, rank=rank, world_size=2).batches[0][0] for rank in (0, 1)]
    assert len(torch.cat(halves).flatten(1).unique(dim=0)) == 6


def test_normalised_as_every_imagenet_model_wants_it():
    grey = Image.new("RGB", (30, 30), (124, 116, 104))
    assert imagenet.augmented(8, normalized=True)(grey).abs().max() < 0.02
    assert imagenet.augmented(8)(grey).shape == (3, 8, 8)
