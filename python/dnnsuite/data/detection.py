# SPDX-License-Identifier: MIT
"""Images with boxes: COCO's files, or coloured rectangles."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from .._lazy import torch
from ..errors import InvalidArgument, Unavailable
from ._origin import Origin, import_torchvision, named, root_of

CLASSES = 81  # COCO's 80 and nothing
SIZE = 300

_FOLDERS = (".", "coco")
_ANNOTATIONS = "annotations/instances_train2017.json"
_IMAGES = "train2017"
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet
_MEAN_BOXES = 7.3  # in an image of COCO


class Labelled(NamedTuple):
    """Boxes `[G, 4]`, left, top, right and bottom in parts of the image's sides, and their labels `[G]` from 1."""

    boxes: torch.Tensor
    labels: torch.Tensor


Encode = Callable[[Any, Any], tuple[Any, Any]]  # from boxes and labels to what a model is to find


def find(kind: str, dataroot: str | Path | None) -> Path | None:
    """Find the folder with COCO 2017: `dataroot` itself, or `coco` in it; None if boxes are to be drawn.

    Raises:
        InvalidArgument: an unknown kind, or a dataroot that is not a folder.
        Unavailable: `real` was asked for and there is none.
    """
    root = root_of(kind, dataroot)
    for folder in [root / name for name in _FOLDERS] if root else []:
        if (folder / _ANNOTATIONS).is_file():
            return folder
    if kind == "real":
        looked = f"{_ANNOTATIONS} of {dataroot or 'no dataroot'}"
        raise Unavailable("COCO 2017", looked, "unpack train2017.zip and annotations_trainval2017.zip")
    return None


class Coco:
    """COCO's training images that have boxes, as samples `(image [3, 300, 300], *encode(boxes, labels))`.

    Cut out so that boxes stay, mirrored, resized, with colours changed, and normalised, as SSD needs it (Liu et al.,
    2016, section 2.2). Labels count from 1 in the order of the file's categories.

    Args:
        folder: result of `find`.
        encode: see `Encode`.

    Raises:
        InvalidArgument: naming the file, and the line or the annotation that is wrong in it.
        Unavailable: pycocotools or torchvision is not installed.
    """

    def __init__(self, folder: Path, encode: Encode) -> None:
        try:
            importlib.import_module("pycocotools")
        except ImportError as error:
            raise Unavailable(
                f"the package pycocotools ({error})", "this Python", "pip install 'dnnsuite[jobs]'"
            ) from error
        import_torchvision()
        path = folder / _ANNOTATIONS
        self._labels = _checked(path)
        self._images = _quiet(folder / _IMAGES, path)
        self._encode, self._transform, self._path = encode, _transform(), path
        boxes = self._images.coco.imgToAnns
        self._images.ids = [i for i in self._images.ids if boxes.get(i)]
        if not len(self._images):
            raise InvalidArgument(f"{path}: no image has a box")
        self.origin = Origin(named("COCO 2017, train", folder), "CC BY 4.0 (annotations)", len(self._images))

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, ...]:
        tv_tensors = importlib.import_module("torchvision.tv_tensors")
        try:
            image, annotations = self._images[i]
        except OSError as error:
            raise InvalidArgument(f"image {self._images.ids[i]} of {self._path}: {error}") from error
        corners = [(x, y, x + w, y + h) for x, y, w, h in (each["bbox"] for each in annotations)]
        boxes = tv_tensors.BoundingBoxes(corners, format="XYXY", canvas_size=(image.height, image.width))
        labels = torch.tensor([self._labels[each["category_id"]] for each in annotations])
        image, target = self._transform(image, {"boxes": boxes, "labels": labels})
        parts = target["boxes"].as_subclass(torch.Tensor).float() / SIZE
        return image.as_subclass(torch.Tensor), *self._encode(parts, target["labels"])


def _quiet(images: Path, annotations: Path) -> Any:
    """Make torchvision's reader, silencing pycocotools."""
    import contextlib
    import io

    datasets = importlib.import_module("torchvision.datasets")
    with contextlib.redirect_stdout(io.StringIO()):
        return datasets.CocoDetection(str(images), str(annotations))


def _checked(path: Path) -> dict[int, int]:
    """Read the label of each category in the file, and check the file, whose faults would show late otherwise."""
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:  # of which JSON's own name the line
        raise InvalidArgument(f"{path}: not JSON ({error})") from error
    lists = ("images", "annotations", "categories")
    if not isinstance(content, dict) or not all(isinstance(content.get(name), list) for name in lists):
        raise InvalidArgument(f"{path}: no object with lists {', '.join(lists)}")
    try:
        labels = {category["id"]: label for label, category in enumerate(content["categories"], 1)}
        images = {image["id"] for image in content["images"] if image["file_name"]}
    except (KeyError, TypeError) as error:
        raise InvalidArgument(f"{path}: an image or a category without {error}") from error
    for place, annotation in enumerate(content["annotations"]):
        wrong = _wrong(annotation, images, labels)
        if wrong:
            raise InvalidArgument(f"{path}: annotation number {place} {wrong}")
    if len(labels) >= CLASSES:
        raise InvalidArgument(f"{path}: {len(labels)} categories, more than COCO's {CLASSES - 1}")
    return labels


def _wrong(annotation: Any, images: set[int], labels: dict[int, int]) -> str:
    if not isinstance(annotation, dict):
        return "is not an object"
    if annotation.get("image_id") not in images:
        return f"is of image {annotation.get('image_id')!r}, which is not in the file"
    if annotation.get("category_id") not in labels:
        return f"is of category {annotation.get('category_id')!r}, which is not in the file"
    box = annotation.get("bbox")
    if not (isinstance(box, list) and len(box) == 4 and all(isinstance(x, int | float) for x in box)):
        return f"has the box {box!r}, not [x, y, width, height]"
    return ""


def _transform() -> Any:
    v2 = importlib.import_module("torchvision.transforms.v2")
    return v2.Compose(
        [
            v2.ToImage(),
            v2.RandomIoUCrop(),
            v2.RandomHorizontalFlip(),
            v2.Resize((SIZE, SIZE)),
            v2.SanitizeBoundingBoxes(),
            v2.ColorJitter(0.125, 0.5, 0.5, 0.05),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(_MEAN, _DEVIATION),
        ]
    )


def rectangles(count: int, seed: int = 0) -> tuple[torch.Tensor, list[Labelled], Origin]:
    """Draw noise `[count, 3, 300, 300]` with rectangles, as many as COCO has boxes; the colour is the label."""
    random = torch.Generator().manual_seed(seed)
    images = torch.randn(count, 3, SIZE, SIZE, generator=random)
    colours = torch.randn(CLASSES, 3, 1, 1, generator=random) * 2
    labelled = []
    for image in images:
        boxes = 1 + int(torch.poisson(torch.tensor(_MEAN_BOXES - 1), generator=random))
        side = 0.05 * 16 ** torch.rand(boxes, 2, generator=random)  # from a twentieth to four fifths
        first = torch.rand(boxes, 2, generator=random) * (1 - side)
        corners = torch.cat((first, first + side), 1)
        labels = torch.randint(1, CLASSES, (boxes,), generator=random)
        for (left, top, right, bottom), label in zip((corners * SIZE).int().tolist(), labels, strict=True):
            image[:, top:bottom, left:right] += colours[label]
        labelled.append(Labelled(corners, labels))
    return images, labelled, Origin(f"synthetic: coloured rectangles, seed {seed}", "none needed", count)
