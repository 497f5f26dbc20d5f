# SPDX-License-Identifier: MIT
"""Detection by SSD300 with a ResNet-34, 81 classes, on COCO 2017: stochastic gradient descent with momentum.

COCO's images are read by `workers` processes, which have started when setup ends. Without them `images` (0: twice the
batch size) images of coloured rectangles are made once and kept on the device. The backbone is random, where the suite
of 2019 downloaded one, unless `weights` names a file of torchvision's ResNet-34.
"""

from __future__ import annotations

import pickle
from typing import Any

from .._lazy import torch
from ..data import detection
from ..data.batches import BatchesInTurn, EndlessLoader, Order
from ..errors import InvalidArgument
from ._job import JobConfig
from .declared_job import declare
from .workload import Card, Made, Preset, Values, Workload, models


def model(options: Values, hyper: Values) -> torch.nn.Module:
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


def scenes(config: JobConfig, options: Values) -> Any:
    """Images `[N, 3, 300, 300]`, and the targets of the default boxes: boxes `[N, D, 4]`, labels `[N, D]`."""
    for name in ("workers", "images"):
        if options[name] < 0:
            raise InvalidArgument(f"{name} {options[name]} is negative")
    folder = detection.find(config.data, config.dataroot)
    return _drawn(config, options) if folder is None else Coco(folder, config, options["workers"])


class Coco:
    """Batches of COCO's images in the order in which the loader has them."""

    feed = "loader"

    def __init__(self, folder: Any, config: JobConfig, workers: int) -> None:
        dataset = detection.Coco(folder, _Matcher(models.multibox.default_boxes()))
        self.record, self.sizes = dataset.origin.record(), dict[str, Any]()
        self._loader = EndlessLoader(
            dataset, config.batch_size, workers, config.data_seed, pin_memory=config.device != "cpu"
        )

    def batch(self, i: int) -> tuple[torch.Tensor, ...]:
        """Return the next batch."""
        return tuple(next(self._loader))

    def close(self) -> None:
        """End the loader."""
        self._loader.close()


def _drawn(config: JobConfig, options: Values) -> BatchesInTurn:
    count = options["images"] or 2 * config.batch_size
    images, labelled, origin = detection.rectangles(count, config.data_seed)
    defaults = models.multibox.default_boxes()
    found = [models.multibox.match(*each, defaults) for each in labelled]
    boxes, labels = (torch.stack(column) for column in zip(*found, strict=True))
    kept = [part.to(config.device) for part in (images, boxes, labels)]

    def begin() -> Any:
        order = Order(count, config.data_seed)

        def draw() -> tuple[torch.Tensor, ...]:
            rows = order.take(config.batch_size).to(config.device)
            return tuple(part[rows] for part in kept)

        return draw

    return BatchesInTurn(begin, origin.record())


def loss(model: Any, images: torch.Tensor, boxes: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
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
        model=model,
        data=scenes,
        loss=loss,
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
