# SPDX-License-Identifier: MIT
"""A network learns to give photographs the style of a picture."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from .._seeds import seed_all
from ..data import Origin, imagenet, photographs
from ..errors import InvalidArgument
from ._job import JobConfig, register
from ._plain_job import PlainJob

if TYPE_CHECKING:
    import torch

    from ..models import VGG16Features

_BATCHES = 4  # in the pool


@register("fast_style")
class FastStyle(PlainJob):
    """TransformerNet judged by VGG-16's features: Adam 0.001, content at relu2_2 1e5, style (Gram matrices) 1e10.

    Batches come from a pool made in setup: no loader is measured. Options beside the original's: `style_image`, a
    file (else a picture of 1/f noise), and `weights`, a file of torchvision's vgg16 (else they are random, which
    takes the same time to compute and means nothing).
    """

    description = "style transfer: TransformerNet judged by VGG-16"
    unit = "images"
    defaults: ClassVar = {
        "batch_size": 128, "repeat": 50, "number": 10, "workers": 8, "image_size": 64, "style_size": 64,
        "content_weight": 1e5, "style_weight": 1e10, "lr": 1e-3, "style_image": None, "weights": None,
    }  # fmt: skip
    smoke: ClassVar = {"batch_size": 1, "repeat": 12, "number": 1}

    def __init__(self, config: JobConfig) -> None:
        super().__init__(config)
        size = self.options["image_size"]
        if size < 16 or size % 4:
            raise InvalidArgument(f"image_size {size} is not a multiple of 4 of 16 or more")

    @classmethod
    def precisions(cls, device: str) -> list[str]:
        return ["fp32", "bf16"]  # gradients of a weight of 1e10 are out of fp16's range

    def setup(self) -> None:
        import torch

        from ..models import TransformerNet, VGG16Features, gram_matrix

        config, options = self.config, self.options
        pool = imagenet.pool(
            config.data,
            config.dataroot,
            config.batch_size,
            _BATCHES,
            options["image_size"],
            seed=config.data_seed,
            workers=options["workers"],
        )
        self._origin = pool.origin
        self._pool: Iterator[torch.Tensor] = itertools.cycle([self._prepared(*each) for each in pool.batches])
        seed_all(config.seed)
        self.model = TransformerNet().to(self.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=options["lr"])
        self.features = VGG16Features()
        if options["weights"]:
            load_vgg16(self.features, options["weights"])
        self.features.to(self.device)
        style = self._style_image().expand(config.batch_size, -1, -1, -1)
        self._style = [gram_matrix(seen) for seen in self.features(normalized(style))]

    def _style_image(self) -> torch.Tensor:
        """`[1, 3, style_size, style_size]`, 0 to 255."""
        import numpy as np
        import torch
        from PIL import Image

        path, size = self.options["style_image"], self.options["style_size"]
        image = photographs.decode(path) if path else Image.fromarray(photographs.Noise().picture(256, 256))
        pixels = np.array(image.resize((size, size), Image.Resampling.LANCZOS), dtype=np.float32)
        return torch.from_numpy(pixels).permute(2, 0, 1)[None].to(self.device)

    def _prepared(self, images: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        return images.to(self.device) * 255

    def with_loader(self) -> Origin:
        loader, origin = self.image_stream(self.options["image_size"])
        self._pool = (self._prepared(*batch) for batch in loader)
        return origin

    def batch(self) -> torch.Tensor:
        """Images `[N, 3, H, W]` of 0 to 255."""
        return next(self._pool)

    def train(self, batch: torch.Tensor) -> torch.Tensor:
        import torch

        from ..models import gram_matrix

        with self.autocast():
            made = self.features(normalized(self.model(batch)))
            given = self.features(normalized(batch))
        made, given = ([seen.float() for seen in part] for part in (made, given))
        mse = torch.nn.functional.mse_loss
        content = mse(made[1], given[1])
        style = sum(mse(gram_matrix(seen), wanted) for seen, wanted in zip(made, self._style, strict=True))
        loss = self.options["content_weight"] * content + self.options["style_weight"] * style
        self.update(loss, self.optimizer)
        return loss

    def provenance(self) -> dict[str, Any]:
        options = self.options
        return {
            "data": self._origin.record(),
            "model": {
                "image_size": options["image_size"],
                "style": options["style_image"] or "1/f noise",
                "vgg16": options["weights"] or "random weights",
            },
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "optimizer": f"Adam, lr {options['lr']}",
        }


def normalized(images: torch.Tensor) -> torch.Tensor:
    """Normalise images `[N, 3, H, W]` of 0 to 255 as networks trained on ImageNet expect."""
    mean, deviation = (images.new_tensor(value).view(3, 1, 1) for value in (imagenet.MEAN, imagenet.DEVIATION))
    return (images / 255 - mean) / deviation


def load_vgg16(features: VGG16Features, path: str) -> None:
    """Load the weights of torchvision's vgg16 (its state_dict). Raises InvalidArgument naming a file without them."""
    import torch

    names = features.state_dict()
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        features.load_state_dict({name: state[f"features.{name}"] for name in names})
    except (OSError, EOFError, RuntimeError, KeyError, TypeError, pickle.UnpicklingError) as error:
        raise InvalidArgument(f"weights {path!r} are not those of torchvision's vgg16: {error!r}") from error
