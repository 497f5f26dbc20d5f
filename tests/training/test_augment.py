# SPDX-License-Identifier: MIT
import numpy as np
import torch

from dnnsuite.data import cifar, import_torchvision
from dnnsuite.training.sources import AugmentedPictures, augment


def test_each_picture_is_as_torchvision_makes_it():
    functional = import_torchvision().transforms.functional
    images, draws = torch.rand(12, 3, 32, 32), torch.rand(12, 4)
    found = augment(images, draws, degrees=15)
    for image, draw, ours in zip(images, draws, found, strict=True):
        top, left = (int(each * 9) for each in draw[:2])
        theirs = functional.crop(functional.pad(image, [4, 4, 4, 4]), top, left, 32, 32)
        theirs = functional.hflip(theirs) if draw[2] < 0.5 else theirs
        theirs = functional.rotate(theirs, 15 * (2 * float(draw[3]) - 1))
        assert (ours != theirs).float().mean() < 0.02  # pixels that lie between two


def test_without_a_turn_pixels_move_unchanged():
    images = torch.rand(4, 3, 32, 32)
    still = torch.tensor([4 / 9 + 0.01, 4 / 9 + 0.01, 0.9, 0.5]).expand(4, 4)
    assert torch.equal(augment(images, still, 0), images)
    mirrored = still.clone()
    mirrored[:, 2] = 0.1
    assert torch.equal(augment(images, mirrored, 0), images.flip(3))


def pictures(count=20):
    draws = np.random.default_rng(0)
    images = draws.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
    return cifar.ColourPictures(images, np.arange(count), 20, None)


def test_what_is_drawn_depends_on_epoch_and_sample_alone():
    data = AugmentedPictures(pictures(), [0.5] * 3, [0.25] * 3, degrees=15.0, seed=7)
    together, labels = data.batch([3, 11, 5], epoch=2)
    alone, _ = AugmentedPictures(pictures(), [0.5] * 3, [0.25] * 3, degrees=15.0, seed=7).batch([11], 2)
    assert torch.equal(together[1], alone[0])
    assert labels.tolist() == [3, 11, 5]
    assert not torch.equal(data.batch([11], 3)[0], alone)


def test_validation_pictures_are_normalised_only():
    data = AugmentedPictures(pictures(), [0.1, 0.2, 0.3], [0.5, 0.25, 2.0], most=4)
    assert len(data) == 4
    images, _ = data.batch([1], 0)
    raw = torch.from_numpy(pictures().images[1]).float() / 255
    expected = (raw - torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1)) / torch.tensor([0.5, 0.25, 2.0]).view(3, 1, 1)
    torch.testing.assert_close(images[0], expected)
