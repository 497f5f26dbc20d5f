# SPDX-License-Identifier: MIT
"""Data of a configuration: CIFAR-100 or folders of classes if the user has them, else digits, else drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data import cifar, imagenet, imagenet_shards, import_torchvision, photographs
from ..errors import InvalidArgument, Unavailable
from .augment import AugmentedPictures
from .settings import Settings

__all__ = ["Data", "compared", "find_data"]

_VALIDATION = ("val", "valid", "validation", "test")
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
    beside = [train_folder.parent / name for name in _VALIDATION]
    valid_folder = next((path for path in beside if path.is_dir()), None)
    if valid_folder is None:
        raise Unavailable(
            f"validation images beside {train_folder}",
            ", ".join(str(path) for path in beside),
            "put them there, in a folder per class",
        )
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
