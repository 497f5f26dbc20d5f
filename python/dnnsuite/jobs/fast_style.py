# SPDX-License-Identifier: MIT
"""A network learns to give photographs the style of a picture: TransformerNet judged by VGG-16's features.

Content is compared at relu2_2, style by Gram matrices. Options beside the original's: `style_image`, a file (else a
picture of 1/f noise), and `weights`, a file of torchvision's vgg16 (else they are random, which takes the same time to
compute and means nothing). Batches come from a pool on the device; a second rate has a loader in the timed loop.
"""

from __future__ import annotations

import pickle
from typing import Any

from .._lazy import Image, torch
from .._lazy import numpy as np
from ..data import imagenet, photographs
from ..data.batches import Pooled
from ..errors import InvalidArgument
from ._job import JobConfig
from .cards import FROM_MEMORY, REAL_PHOTOGRAPHS
from .declared_job import declare
from .workload import Card, Made, Preset, Values, Workload, models

_BATCHES = 4  # in the pool


def model(options: Values, hyper: Values) -> torch.nn.Module:
    net, features = models.TransformerNet(), models.VGG16Features()
    if options["weights"]:
        load_vgg16(features, options["weights"])
    weights = options["content_weight"], options["style_weight"]
    return models.StyleJudge(net, features, normalized(style_image(options)), *weights)


def style_image(options: Values) -> torch.Tensor:
    """`[1, 3, style_size, style_size]`, 0 to 255."""
    path, size = options["style_image"], options["style_size"]
    image = photographs.decode(path) if path else Image.fromarray(photographs.Noise().picture(256, 256))
    pixels = np.array(image.resize((size, size), Image.Resampling.LANCZOS), dtype=np.float32)
    return torch.from_numpy(pixels).permute(2, 0, 1)[None]


def pictures(config: JobConfig, options: Values) -> Pooled:
    """Images `[N, 3, H, W]` of 0 to 255."""
    size = options["image_size"]
    if size < 16 or size % 4:
        raise InvalidArgument(f"image_size {size} is not a multiple of 4 of 16 or more")
    pool = imagenet.pool(
        config.data, config.dataroot, config.batch_size, _BATCHES, size, seed=config.data_seed,
        workers=options["workers"],
    )  # fmt: skip
    return Pooled([(images.to(config.device) * 255,) for images, _ in pool.batches], pool.origin.record())


def files(config: JobConfig, options: Values) -> Any:
    loader, origin = imagenet.stream(
        config.data, config.dataroot, config.batch_size, options["image_size"], seed=config.data_seed,
        workers=options["workers"],
    )  # fmt: skip
    return loader, lambda batch: (batch[0] * 255,), origin


def normalized(images: torch.Tensor) -> torch.Tensor:
    """Normalise images `[N, 3, H, W]` of 0 to 255 as networks trained on ImageNet expect."""
    mean, deviation = (images.new_tensor(value).view(3, 1, 1) for value in (imagenet.MEAN, imagenet.DEVIATION))
    return (images / 255 - mean) / deviation


def loss(model: Any, images: torch.Tensor) -> torch.Tensor:
    made, given = model.features(normalized(model.net(images))), model.features(normalized(images))
    return model.difference(*([models.widened(seen) for seen in part] for part in (made, given)))


def load_vgg16(features: models.VGG16Features, path: str) -> None:
    """Load the weights of torchvision's vgg16 (its state_dict). Raises InvalidArgument naming a file without them."""
    names = features.state_dict()
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        features.load_state_dict({name: state[f"features.{name}"] for name in names})
    except (OSError, EOFError, RuntimeError, KeyError, TypeError, pickle.UnpicklingError) as error:
        raise InvalidArgument(f"weights {path!r} are not those of torchvision's vgg16: {error!r}") from error


declare(
    Workload(
        name="fast_style",
        description="style transfer: TransformerNet judged by VGG-16",
        unit="images",
        options={
            "workers": 8, "image_size": 64, "style_size": 64, "content_weight": 1e5, "style_weight": 1e10, "lr": 1e-3,
            "style_image": "", "weights": "",
        },
        model=model,
        data=pictures,
        loss=loss,
        optimizer=Made("Adam", {"lr": "lr"}),
        hyper={"lr": 1e-3},
        files=files,
        half=("bf16",),  # gradients of a weight of 1e10 are out of fp16's range
        presets={
            "quick": Preset(3, 4, batch_size=1, plan=(1, 2), budget_s=40.0, observed=(12, 1)),
            "default": Preset(3, 4, batch_size=4, plan=(1, 2), budget_s=95.0),
            "baselines": Preset(3, 100, batch_size=128, repeats=3, max_num_Bs=4, observed=(50, 10)),
        },
        card=Card(
            "style transfer",
            "TransformerNet judged by VGG-16; content 1e5, style 1e10",
            source=("johnson2016", "simonyan2015", "mila2019"),
            about=(
                FROM_MEMORY,
                "random weights in VGG-16 unless a file is given: nothing is downloaded; the time is the same",
            ),
            changes=(
                REAL_PHOTOGRAPHS,
            ),
        ),
    )
)  # fmt: skip
