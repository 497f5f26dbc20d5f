# SPDX-License-Identifier: MIT
"""Data of a configuration: CIFAR-100 or folders of classes if the user has them, else digits, else drawn; and SC20's
augmentation of small pictures, for a whole batch at once: shift, mirror, turn, normalise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import affine_grid, grid_sample, pad

from ..data import cifar, imagenet, imagenet_shards, import_torchvision, photographs
from ..data.cifar import ColourPictures
from ..errors import InvalidArgument, Unavailable
from .settings import Settings

_PADDING = 4  # pixels around a picture from which the random part is cut


def augment(images: torch.Tensor, draws: torch.Tensor, degrees: float) -> torch.Tensor:
    """Shift by up to four pixels, mirror every second picture, turn by up to `degrees` to the nearest pixel.

    Args:
        images: float `[N, 3, H, W]`; what moves in from outside is 0.
        draws: uniform in [0, 1) `[N, 4]`: of the row, the column, the mirror and the angle.
    """
    count, _, height, width = images.shape
    shifts = (draws[:, :2] * (2 * _PADDING + 1)).long()
    rows = shifts[:, :1] + torch.arange(height)
    columns = shifts[:, 1:] + torch.arange(width)
    columns = torch.where(draws[:, 2:3] < 0.5, columns.flip(1), columns)
    padded = pad(images, (_PADDING,) * 4).permute(0, 2, 3, 1)
    batch = torch.arange(count)[:, None, None]
    moved = padded[batch, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
    return _turned(moved, (2 * draws[:, 3] - 1) * math.radians(degrees)) if degrees else moved.contiguous()


def _turned(images: torch.Tensor, radians: torch.Tensor) -> torch.Tensor:
    cosine, sine, zero = radians.cos(), radians.sin(), torch.zeros_like(radians)
    turn = torch.stack([cosine, -sine, zero, sine, cosine, zero], 1).view(-1, 2, 3)
    grid = affine_grid(turn, list(images.shape), align_corners=False)
    return grid_sample(images, grid, mode="nearest", align_corners=False)


class AugmentedPictures:
    """Pictures in memory, by the batch.

    What is drawn for a sample depends on seed, epoch and its index alone: not on the batch, the process or the worker.

    Args:
        pictures: pictures with labels.
        mean, std: mean and deviation of red, green and blue in [0, 1].
        degrees: largest turn of the augmentation; None for no augmentation.
        most: number of pictures, the first ones; 0 for all.
    """

    def __init__(
        self,
        pictures: ColourPictures,
        mean: Sequence[float],
        std: Sequence[float],
        degrees: float | None = None,
        seed: int = 0,
        most: int = 0,
    ) -> None:
        kept = most or len(pictures.labels)
        self._images = torch.from_numpy(pictures.images[:kept].copy())
        self._labels = torch.from_numpy(pictures.labels[:kept].copy())
        # Normalised before it is padded, 0 would be the mean's grey; the original's border is black.
        self._mean, self._std = (torch.tensor(list(each)).view(3, 1, 1) for each in (mean, std))
        self._degrees, self._seed = degrees, seed
        self._drawn: tuple[int, torch.Tensor] | None = None

    @property
    def fixed(self) -> list[object]:
        """All that decides its batches, but for the epoch."""
        return [self._images, self._labels, self._mean, self._std, self._degrees, self._seed]

    def __len__(self) -> int:
        return len(self._labels)

    def share_memory_with(self, other: AugmentedPictures) -> bool:
        """Use the pictures of `other` if they are the same; return True if so."""
        same = torch.equal(self._images, other._images) and torch.equal(self._labels, other._labels)
        if same:
            self._images, self._labels = other._images, other._labels
        return same

    def batch(self, indices: Sequence[int], epoch: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Pictures float32 `[N, 3, 32, 32]`, normalised, and labels int64 `[N]`."""
        chosen = torch.as_tensor(indices)
        images = self._images[chosen].float().div_(255)
        if self._degrees is not None:
            images = augment(images, self._draws(epoch)[chosen], self._degrees)
        return images.sub_(self._mean).div_(self._std), self._labels[chosen]

    def _draws(self, epoch: int) -> torch.Tensor:
        """Draws of all samples `[len, 4]` in an epoch, kept while the epoch lasts."""
        if self._drawn is None or self._drawn[0] != epoch:
            seed = ((self._seed & 0xFFFFFFFF) << 31) ^ (epoch * 0x85EBCA6B & 0x7FFFFFFF) ^ 1
            generator = torch.Generator().manual_seed(seed)
            self._drawn = epoch, torch.rand(len(self), 4, generator=generator)
        return self._drawn[1]


_SIZE = 224
_RESIZE = 256 / 224  # of the shorter side, to the side of the middle that is taken from it


@dataclass(frozen=True)
class Data:
    """Training and validation samples.

    Attributes:
        train, valid: samples, see :class:`dnnsuite.training.loading.Samples`.
        classes: number of classes; labels are below it.
        source: name in the record.
        record: provenance, for the details of the record.
        item: name of the samples, in the plural.
    """

    train: Any
    valid: Any
    classes: int
    source: str
    record: dict[str, Any]
    item: str = "images"


def compared(samples: Any) -> Any:
    """Return what a resumed run compares of some samples.

    Of those in memory it is all numbers; of files of images, wherever they lie, their names and classes, and of shards
    their sizes, for to read the images takes as long as an epoch does.
    """
    dataset = samples.dataset if isinstance(samples, _First) else samples
    if isinstance(dataset, AugmentedPictures):
        return dataset.fixed
    if isinstance(dataset, imagenet_shards.ShardedImages):
        return [len(samples), dataset.classes, dataset.files]
    if isinstance(samples, _First):
        names = [str(Path(path).relative_to(dataset.root)) for path, _ in dataset.samples]
        return [len(samples), dataset.classes, "\n".join(names)]
    return samples


def find_data(settings: Settings, dataroot: str | Path | None = None) -> Data:
    """Find the data of a configuration.

    Args:
        settings: configuration; its `data_path` is used if it is a folder and `dataroot` is not given.
        dataroot: folder with the files of CIFAR-100, with train/ and val/ that have a folder per class, or with
            TFRecord shards.

    Raises:
        InvalidArgument: the data do not fit the configuration, or are damaged.
        Unavailable: real data were requested (`data=real`), and there are none.
    """
    root = dataroot
    if root is not None and not Path(root).is_dir():
        raise InvalidArgument(f"dataroot {str(root)!r} is not a folder")
    if root is None and settings.data_path is not None and Path(settings.data_path).is_dir():
        root = settings.data_path
    others = root if settings.data != "synthetic" and root is not None and not cifar.find(Path(root)) else None
    if folder := imagenet.find("auto", others):
        return _fits(_folders(folder, settings), settings)
    if shards := imagenet_shards.find(others):
        return _fits(_shards(shards, settings), settings)
    if dataroot is not None and others is not None:
        _refuse_empty(Path(dataroot))
    return _fits(_pictures(settings, root), settings)


def _refuse_empty(root: Path) -> None:
    """Refuse a folder that the user named for its classes, and in which there are no images."""
    for folder in (root / name for name in imagenet.FOLDERS if name != "."):
        if folder.is_dir():
            raise InvalidArgument(f"{folder} has no images in folders of classes")


def _fits(data: Data, settings: Settings) -> Data:
    if data.classes > settings.num_classes:
        raise InvalidArgument(
            f"num_classes is {settings.num_classes}, and {data.source} has {data.classes}: "
            f"set num_classes={data.classes}"
        )
    return data


def _pictures(settings: Settings, root: str | Path | None) -> Data:
    train, valid = (cifar.load(settings.data, root, settings.seed, part) for part in ("train", "valid"))
    if settings.image_size not in (0, cifar.SIDE):
        raise InvalidArgument(f"image_size is {settings.image_size}, and {train.origin.source} has 32 x 32 pixels")
    mean, std = settings.cifar100_mean, settings.cifar100_std
    most = settings.max_train_samples, settings.max_valid_samples
    return Data(
        AugmentedPictures(train, mean, std, settings.rnd_rotation_angle, settings.seed, most[0]),
        AugmentedPictures(valid, mean, std, most=most[1]),
        train.classes,
        train.origin.source,
        {"train": train.origin.record(), "valid": valid.origin.record()},
    )


class _First:
    """The first samples of a dataset, evenly spread, so that a part of sorted classes has all of them."""

    def __init__(self, dataset: Any, most: int) -> None:
        self.dataset = dataset
        self._length = min(most, len(dataset)) if most else len(dataset)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index * len(self.dataset) // self._length]


def _folders(train_folder: Path, settings: Settings) -> Data:
    """train/ and its neighbour for validation, as ImageNet is kept."""
    valid_folder = imagenet.beside(train_folder)
    size = settings.image_size or _SIZE
    train = imagenet.folder(train_folder, imagenet.augmented(size, normalized=True))
    valid = imagenet.folder(valid_folder, _centred(size))
    for name, dataset, folder in (("train", train, train_folder), ("valid", valid, valid_folder)):
        empty = [each for each in dataset.classes if not photographs.files(folder / each)]
        if empty:
            raise InvalidArgument(f"{folder / empty[0]} has no images, and is a class of the {name} part")
    if train.classes != valid.classes:
        odd = sorted(set(train.classes) ^ set(valid.classes))
        raise InvalidArgument(f"{train_folder} and {valid_folder} have other classes: {odd[0]} is in one of them only")
    origins = imagenet.origin_of(train_folder, train), imagenet.origin_of(valid_folder, valid)
    source = f"{train_folder.parent}: images in {len(train.classes)} classes"
    return _image_data(train, valid, origins, source, settings)


def _shards(train_shards: list[Path], settings: Settings) -> Data:
    """TFRecord files, as TBD's conversion or `dnnsuite data tfrecord` writes them."""
    folder = train_shards[0].parent
    valid_shards = imagenet_shards.find(folder, "validation")
    if not valid_shards:
        raise Unavailable(
            f"validation shards beside {train_shards[0]}",
            str(folder / "validation-*"),
            "put them there, or write both parts with `dnnsuite data tfrecord`",
        )
    size = settings.image_size or _SIZE
    train = imagenet_shards.ShardedImages(train_shards, imagenet.augmented(size, normalized=True))
    valid = imagenet_shards.ShardedImages(valid_shards, _centred(size))
    origins = imagenet_shards.origin_of(train, train_shards), imagenet_shards.origin_of(valid, valid_shards)
    source = f"{folder}: images in {len(train_shards)} TFRecord shards"
    return _image_data(train, valid, origins, source, settings)


def _image_data(train: Any, valid: Any, origins: Sequence[Any], source: str, settings: Settings) -> Data:
    """Data of two sets of images with classes, cut to the configuration's numbers of samples."""
    return Data(
        _First(train, settings.max_train_samples),
        _First(valid, settings.max_valid_samples),
        len(train.classes),
        source,
        {part: origin.record() for part, origin in zip(("train", "valid"), origins, strict=True)},
    )


def _centred(size: int) -> Any:
    """Return the middle of a picture, as ImageNet is validated on: 224 of 256 pixels."""
    transforms = import_torchvision().transforms
    normalize = transforms.Normalize(imagenet.MEAN, imagenet.DEVIATION)
    cut = [transforms.Resize(round(size * _RESIZE)), transforms.CenterCrop(size)]
    return transforms.Compose([*cut, transforms.ToTensor(), normalize])
