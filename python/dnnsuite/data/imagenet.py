# SPDX-License-Identifier: MIT
"""Images in a folder per class, as ImageNet's training set is kept, and batches of them made beforehand."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from .._lazy import torch
from .._seeds import seed_all
from ..errors import InvalidArgument, Unavailable
from . import photographs
from ._origin import Origin, import_torchvision, named, root_of
from .batches import EndlessLoader

FOLDERS = ("ImageNet/train", "train", ".")  # the first with pictures in its folders is taken
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's red, green and blue in [0, 1]

_VALIDATION = ("val", "valid", "validation", "test")
_CLASSES = 1000
_GENERATED = 512  # JPEG files, as many as the job `loader` makes


class Pool(NamedTuple):
    """Attributes: batches: of images `[N, 3, H, W]` in [0, 1] and classes int64 `[N]`; origin: where they came from."""

    batches: list[tuple[torch.Tensor, torch.Tensor]]
    origin: Origin


def find(kind: str = "auto", dataroot: str | Path | None = None) -> Path | None:
    """Find the user's folder of classes; None without one, or if it is not wanted.

    Raises InvalidArgument for an unknown kind or a dataroot that is not a folder, Unavailable if `real` was asked for
    and there is none.
    """
    root = root_of(kind, dataroot)
    for folder in [root / name for name in FOLDERS] if root else []:
        if folder.is_dir() and any(photographs.files(path) for path in folder.iterdir()):
            return folder
    if kind == "real":
        raise Unavailable(
            "images in a folder per class",
            ", ".join(str(root / name) for name in FOLDERS) if root else "no dataroot",
            "give a dataroot that holds ImageNet/train, train or the folders of the classes",
        )
    return None


def folder(root: Path, transform: Any) -> Any:
    """Make torchvision's ImageFolder; a file that cannot be decoded raises InvalidArgument naming it."""
    datasets = import_torchvision().datasets
    try:
        return datasets.ImageFolder(str(root), transform, loader=photographs.decode, allow_empty=True)
    except FileNotFoundError as error:
        raise InvalidArgument(f"{root} is not a folder of classes with images: {error}") from error


def origin_of(root: Path, dataset: Any) -> Origin:
    """Provenance of a user's folder, for the record."""
    return Origin(
        named(f"{root}: JPEG files in {len(dataset.classes)} classes", root), "that of the user's files", len(dataset)
    )


def beside(train: Path) -> Path:
    """Return the folder of validation images beside that of training images.

    Raises Unavailable if there is none.
    """
    places = [train.parent / name for name in _VALIDATION]
    for place in places:
        if place.is_dir():
            return place
    raise Unavailable(
        f"validation images beside {train}", ", ".join(map(str, places)), "put them there, in a folder per class"
    )


def augmented(size: int, normalized: bool = False) -> Any:
    """Make the usual transform for training: a random part of the picture, `size` x `size`, mirrored or not."""
    transforms = import_torchvision().transforms
    steps = [transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    return transforms.Compose([*steps, transforms.Normalize(MEAN, DEVIATION)] if normalized else steps)


def centred(size: int) -> Any:
    """Make the transform that takes the middle of a picture, `size` x `size`, after scaling its shorter side to
    that."""
    transforms = import_torchvision().transforms
    return transforms.Compose([transforms.Resize(size), transforms.CenterCrop(size), transforms.ToTensor()])


def stream(
    kind: str, dataroot: str | Path | None, batch_size: int, size: int, *,
    augment: bool = False, seed: int = 0, workers: int = 0, rank: int = 0, world_size: int = 1,
) -> tuple[EndlessLoader, Origin]:  # fmt: skip
    """Make a loader that decodes the user's images, or else generated JPEG files, while a job trains; to be closed.

    Images are `[N, 3, size, size]` in [0, 1], classes int64 `[N]`. Raises as `pool` does.
    """

    transform = augmented(size) if augment else centred(size)
    root = find(kind, dataroot)
    if root is None:
        made, origin = photographs.jpeg_folder(_GENERATED)
        dataset = folder(made, transform)
    else:
        dataset = folder(root, transform)
        origin = origin_of(root, dataset)
    seed_all(seed)
    return EndlessLoader(dataset, batch_size, workers, seed, rank=rank, world_size=world_size), origin


def pool(
    kind: str, dataroot: str | Path | None, batch_size: int, batches: int, size: int, *,
    augment: bool = False, seed: int = 0, workers: int = 0, rank: int = 0, world_size: int = 1,
) -> Pool:  # fmt: skip
    """Batches of the user's images, decoded now by `workers` processes; else of parts of the photographs that a package
    ships; else, or if `synthetic` is asked for, of uniform noise.

    Training on them measures no loader. Of `world_size` processes each gets other images.
    Raises as `find` does, and InvalidArgument for a file that cannot be decoded.
    """
    root = find(kind, dataroot)
    if root is None and kind != "synthetic" and (carried := photographs.shipped()):
        return _of_photographs(*carried, batch_size, batches, size, seed * world_size + rank)
    if root is None:
        generator = torch.Generator().manual_seed(seed * world_size + rank)
        shape = batch_size, 3, size, size
        made = [
            (torch.rand(shape, generator=generator), torch.randint(_CLASSES, shape[:1], generator=generator))
            for _ in range(batches)
        ]
        return Pool(made, Origin(f"synthetic: uniform noise, seed {seed}", "none needed", batches * batch_size))
    dataset = folder(root, augmented(size) if augment else centred(size))
    seed_all(seed)  # of the augmentation, where this process does it
    loader = EndlessLoader(dataset, batch_size, workers, seed, rank=rank, world_size=world_size)
    try:
        read = [(images, classes) for images, classes in (next(loader) for _ in range(batches))]
    finally:
        loader.close()
    known, used = origin_of(root, dataset), min(batches * batch_size, len(dataset))
    return Pool(read, Origin(f"{known.source}, {used} of {len(dataset)} used", known.licence, used))


def _of_photographs(paths: list[Path], origin: Origin, batch_size: int, batches: int, size: int, seed: int) -> Pool:
    """Random parts of some photographs; the class of a part is its photograph."""
    pictures = [photographs.decode(path) for path in paths]
    cut = augmented(size)
    seed_all(seed)
    made = []
    for first in range(batches):
        chosen = [(first * batch_size + i) % len(pictures) for i in range(batch_size)]
        made.append((torch.stack([cut(pictures[i]) for i in chosen]), torch.tensor(chosen)))
    return Pool(made, Origin(f"parts of {origin.source}", origin.licence, len(pictures)))
