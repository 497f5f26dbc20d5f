# SPDX-License-Identifier: MIT
"""Jobs that find things in pictures.

`ssd` is SSD300 with a ResNet-34, 81 classes, on COCO 2017: stochastic gradient descent with momentum. COCO's images are
read by `workers` processes, which have started when setup ends. Without them `images` (0: twice the batch size) images
of coloured rectangles are made once and kept on the device. The backbone is random, where the suite of 2019 downloaded
one, unless `weights` names a file of torchvision's ResNet-34.

`detector` is detection without anchors (FCOS; Tian et al., 2019): objectness by focal loss, classes, boxes by
generalised overlap. A scene has three things, of sizes that vary. At paper size features of ResNet-50 go through a
pyramid of five levels, each of which finds things of its own sizes; at quick size one level does. The measure is the
average precision at an overlap of one half, all classes pooled.
"""

from __future__ import annotations

import math
import pickle
from typing import Any

from .._lazy import functional as F
from .._lazy import torch
from ..data import detection
from ..data.batches import BatchesInTurn, EndlessLoader, Loaded, Pooled
from ..errors import InvalidArgument
from ._job import JobConfig
from .declared_job import declare
from .suite2026.vision import counted, pictures
from .workload import Card, Made, Metric, Preset, Rate, Values, Workload, models, sizes


def ssd(options: Values, hyper: Values) -> torch.nn.Module:
    """The network, with the default boxes in a buffer."""
    made = models.SSD300(detection.CLASSES, _weights(options["weights"]) if options["weights"] else None)
    made.register_buffer("defaults", models.multibox.default_boxes(), persistent=False)
    return made


def _weights(path: str) -> dict[str, torch.Tensor]:
    try:
        weights = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
        raise InvalidArgument(f"weights {path!r} cannot be read: {error}") from error
    if not isinstance(weights, dict):
        raise InvalidArgument(f"weights {path!r} is not a file of parameters by name")
    return weights


def labelled_images(config: JobConfig, options: Values) -> Any:
    """Images `[N, 3, 300, 300]`, and the targets of the default boxes: boxes `[N, D, 4]`, labels `[N, D]`."""
    for name in ("workers", "images"):
        if options[name] < 0:
            raise InvalidArgument(f"{name} {options[name]} is negative")
    folder = detection.find(config.data, config.dataroot)
    if folder is None:
        return _drawn(config, options)
    dataset = detection.Coco(folder, _Matcher(models.multibox.default_boxes()))
    loader = EndlessLoader(
        dataset, config.batch_size, options["workers"], config.data_seed, pin_memory=config.device != "cpu"
    )
    return Loaded(loader, dataset.origin.record())


def _drawn(config: JobConfig, options: Values) -> BatchesInTurn:
    count = options["images"] or 2 * config.batch_size
    images, labelled, origin = detection.rectangles(count, config.data_seed)
    defaults = models.multibox.default_boxes()
    found = [models.multibox.match(*each, defaults) for each in labelled]
    boxes, labels = (torch.stack(column) for column in zip(*found, strict=True))
    kept = [part.to(config.device) for part in (images, boxes, labels)]
    return BatchesInTurn.of_rows(kept, config.batch_size, config.data_seed, origin.record())


def ssd_loss(model: Any, images: torch.Tensor, boxes: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    offsets, logits = (models.widened(x) for x in model(images))
    return models.multibox.multibox_loss(offsets, logits, boxes, labels, model.defaults)


class _Matcher:
    """`multibox.match` with the default boxes; a class, so that worker processes can be given it."""

    def __init__(self, defaults: torch.Tensor) -> None:
        self._defaults = defaults

    def __call__(self, boxes: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return models.multibox.match(boxes, labels, self._defaults)


declare(
    Workload(
        name="ssd",
        description="SSD300 with a ResNet-34, SGD, on COCO 2017",
        unit="images",
        options={"workers": 8, "images": 0, "weights": ""},
        model=ssd,
        data=labelled_images,
        loss=ssd_loss,
        optimizer=Made("SGD", {"lr": "lr", "momentum": "momentum", "weight_decay": "weight_decay"}),
        hyper={"lr": 1e-3, "momentum": 0.9, "weight_decay": 5e-4},
        presets={
            "quick": Preset(
                3, 2, batch_size=1, plan=(1, 2), budget_s=40.0, observed=(4, 1), options={"workers": 0, "images": 2}
            ),
            "default": Preset(3, 2, batch_size=2, plan=(1, 2), budget_s=95.0),
            "baselines": Preset(3, 100, batch_size=128, repeats=3, max_num_Bs=4, observed=(30, 10)),
        },
        card=Card(
            "object detection",
            "SSD300 on ResNet-34; smooth-L1 and cross-entropy with hard negatives",
            source=("liu2016", "lin2014", "mila2019"),
            about=(
                "random weights in the backbone unless a file is given: nothing is downloaded; the time is the same",
                "coloured rectangles in memory where COCO is not there: no loader is measured then",
            ),
        ),
    )
)


_THINGS = 3  # in a scene
_SCENES = 48  # batches of scenes that are drawn once
_FOUND = 30  # of a scene at most


def scenes(config: JobConfig, options: Values, train: bool = True) -> Pooled:
    """Scenes `[N, C, S, S]`; of each place whether a thing is there `[N, P]`, its class and its box `[N, P, 4]`."""
    size, levels, count, finest = options["size"], options["levels"], config.batch_size, models.fcos.FIRST
    own = pictures(config, {**options, "size": 32}, train)
    generator = torch.Generator().manual_seed(config.data_seed + (0 if train else 1 << 40))
    sides = [math.ceil(size / (finest * 2**level)) for level in range(levels)]
    first = [sum(side * side for side in sides[:level]) for level in range(levels + 1)]
    made = []
    for batch in range(_SCENES if train else 8):
        x = 0.1 * torch.randn(count, options["channels"], size, size, generator=generator)
        there, kind = torch.zeros(count, first[-1]), torch.zeros(count, first[-1], dtype=torch.long)
        box = torch.zeros(count, first[-1], 4)
        for thing in range(_THINGS):
            images, classes = own.batch(batch * _THINGS + thing)
            across = torch.randint(size // 6, size // 3 + 1, (count,), generator=generator).tolist()
            corners = (torch.rand(count, 2, generator=generator) * (size - torch.tensor(across))[:, None]).long()
            for i, ((u, v), s) in enumerate(zip(corners.tolist(), across, strict=True)):
                level = min(levels - 1, max(0, int(math.log2(max(s, 1) / 32))))
                stride = finest * 2**level
                place = first[level] + (v + s // 2) // stride * sides[level] + (u + s // 2) // stride
                if there[i, place]:
                    continue
                drawn = F.interpolate(images[i : i + 1] + 1, size=(s, s), mode="bilinear", align_corners=False)[0]
                x[i, :, v : v + s, u : u + s] += drawn
                there[i, place], kind[i, place] = 1, classes[i]
                box[i, place] = torch.tensor([u, v, u + s, v + s], dtype=torch.float32)
        made.append((x, there, kind, box))
    return Pooled(made, own.record)


def detector_loss(
    model: Any, x: torch.Tensor, there: torch.Tensor, kind: torch.Tensor, box: torch.Tensor
) -> torch.Tensor:
    score, classes, boxes = model(x)
    score, things = models.widened(score), there.sum()
    known = F.binary_cross_entropy_with_logits(score, there, reduction="none")
    focal = ((score.sigmoid() - there).abs() ** 2 * known).sum()
    of_class = F.cross_entropy(models.widened(classes).transpose(1, 2), kind, reduction="none")
    return (focal + (of_class * there).sum() + ((1 - models.fcos.overlaps(boxes, box)[1]) * there).sum()) / things


def precision(model: Any, x: torch.Tensor, there: torch.Tensor, kind: torch.Tensor, box: torch.Tensor) -> torch.Tensor:
    score, classes, boxes = model(x)
    return models.fcos.average_precision(score, classes, boxes, there, kind, box, _FOUND)


declare(
    Workload(
        name="detector",
        description="detection: irregular targets, boxes",
        unit="images",
        options={"width": 96, "tower": 1, "levels": 1, "size": 96, "channels": 1, "classes": 10},
        model=lambda options, hyper: models.Detector(options),
        data=scenes,
        loss=detector_loss,
        held_out=lambda config, options: scenes(config, options, train=False),
        metric=Metric("AP50", precision, "more", {"quick": 0.35, "default": 0.5}, batches=8),
        optimizer=Made("AdamW", {"lr": "lr", "weight_decay": 0.05}),
        hyper={"lr": 3e-3},
        rate=Rate(warmup=0.05, constant=0.3),
        clip_norm=5.0,
        flops_per_item=lambda options: counted(models.Detector, options),
        presets=sizes((45, 16), (200, 32), (50, 16), width=256, tower=4, levels=5, size=800, channels=3, classes=91),
        card=Card(
            "object detection",
            "ResNet-50, pyramid of 5 levels of 256, towers of 4 convolutions",
            source=("tian2019", "he2016"),
            about=(
                "scenes drawn of mnist's pictures in place of COCO",
                "one place of a thing learns of it; no centre-ness",
                "the target is 0.35 at quick size, not the prototype's 0.5, which was one of digits",
            ),
            parameters=32.3,
        ),
    )
)
