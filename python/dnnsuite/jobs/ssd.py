# SPDX-License-Identifier: MIT
"""Detection by SSD300, on COCO 2017."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from .._seeds import seed_all
from ..data import detection
from ..data.endless import EndlessLoader
from ..data.order import Order
from ..errors import InvalidArgument
from ._job import JobConfig, register
from ._plain_job import PlainJob

if TYPE_CHECKING:
    import torch

_RATE, _MOMENTUM, _DECAY = 1e-3, 0.9, 5e-4


class Batch(NamedTuple):
    """Images `[N, 3, 300, 300]`, and the targets of the default boxes: boxes `[N, D, 4]`, labels `[N, D]`."""

    images: torch.Tensor
    boxes: torch.Tensor
    labels: torch.Tensor


@register("ssd")
class Detector(PlainJob):
    """SSD300 with a ResNet-34, 81 classes; stochastic gradient descent, 1e-3, momentum 0.9, weight decay 5e-4.

    COCO's images are read by `workers` processes, which have started when setup ends. Without them `images` (0: twice
    the batch size) images of coloured rectangles are made once and kept on the device. The backbone is random, where
    the suite of 2019 downloaded one, unless `weights` names a file of torchvision's ResNet-34.
    """

    description = "SSD300 with a ResNet-34, SGD, on COCO 2017"
    unit = "images"
    defaults: ClassVar = {"batch_size": 128, "repeat": 30, "number": 10, "workers": 8, "images": 0, "weights": ""}
    smoke: ClassVar = {"batch_size": 1, "repeat": 4, "number": 1, "workers": 0, "images": 2}

    def __init__(self, config: JobConfig) -> None:
        super().__init__(config)
        for name in ("workers", "images"):
            if self.options[name] < 0:
                raise InvalidArgument(f"{name} {self.options[name]} is negative")
        self._loader: EndlessLoader | None = None

    def setup(self) -> None:
        import torch

        from ..models import multibox
        from ..models.ssd import SSD300

        seed_all(self.config.seed)
        self.model = SSD300(detection.CLASSES, self._weights()).to(self.device)
        defaults = multibox.default_boxes()
        self._defaults = defaults.to(self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=_RATE, momentum=_MOMENTUM, weight_decay=_DECAY)
        folder = detection.find(self.config.data, self.config.dataroot)
        if folder is None:
            self._make(defaults)
        else:
            dataset = detection.Coco(folder, _Matcher(defaults))
            self._origin, self.feed = dataset.origin, "loader"
            self._loader = EndlessLoader(
                dataset,
                self.config.batch_size,
                self.options["workers"],
                self.config.data_seed,
                pin_memory=self.device.type == "cuda",
            )

    def _make(self, defaults: torch.Tensor) -> None:
        import torch

        from ..models import multibox

        count = self.options["images"] or 2 * self.config.batch_size
        images, labelled, self._origin = detection.rectangles(count, self.config.data_seed)
        found = [multibox.match(*each, defaults) for each in labelled]
        boxes, labels = (torch.stack(column) for column in zip(*found, strict=True))
        self._made = Batch(*(part.to(self.device) for part in (images, boxes, labels)))
        self._order = Order(count, self.config.data_seed)

    def _weights(self) -> dict[str, torch.Tensor] | None:
        import torch

        path = self.options["weights"]
        if not path:
            return None
        try:
            weights = torch.load(path, map_location="cpu", weights_only=True)
        except (OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
            raise InvalidArgument(f"weights {path!r} cannot be read: {error}") from error
        if not isinstance(weights, dict):
            raise InvalidArgument(f"weights {path!r} is no file of parameters by name")
        return weights

    def batch(self) -> Batch:
        if self._loader is not None:
            return Batch(*(part.to(self.device, non_blocking=True) for part in next(self._loader)))
        rows = self._order.take(self.config.batch_size).to(self.device)
        return Batch(*(part[rows] for part in self._made))

    def train(self, batch: Batch) -> torch.Tensor:
        from ..models.multibox import multibox_loss

        with self.autocast():
            offsets, logits = self.model(batch.images)
        loss = multibox_loss(offsets.float(), logits.float(), batch.boxes, batch.labels, self._defaults)
        self.update(loss, self.optimizer)
        return loss

    def provenance(self) -> dict[str, Any]:
        return {
            "data": self._origin.record(),
            "model": {
                "type": "SSD300",
                "backbone": "ResNet-34",
                "classes": detection.CLASSES,
                "weights": self.options["weights"] or "random",
            },
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "optimizer": f"SGD, lr {_RATE}, momentum {_MOMENTUM}, weight decay {_DECAY}",
        }

    def close(self) -> None:
        super().close()
        if self._loader is not None:
            self._loader.close()


class _Matcher:
    """`multibox.match` with the default boxes; a class, so that worker processes can be given it."""

    def __init__(self, defaults: torch.Tensor) -> None:
        self._defaults = defaults

    def __call__(self, boxes: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        from ..models.multibox import match

        return match(boxes, labels, self._defaults)
