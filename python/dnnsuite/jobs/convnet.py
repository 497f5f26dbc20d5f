# SPDX-License-Identifier: MIT
"""torchvision's image classifiers, in single and in half precision, on one device or on all: gradient descent.

`arch` has random weights and learns 1000 classes. Batches come from a pool on the device; a second rate has a loader
in the timed loop. Of several processes each has images of its own, `batch_size` of them.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from .._lazy import torch
from ..data import imagenet, import_torchvision
from ..data.batches import Pooled
from ..errors import InvalidArgument, did_you_mean
from . import distributed
from ._job import JobConfig
from .cards import FROM_MEMORY, ON_EVERY_DEVICE, REAL_PHOTOGRAPHS
from .declared_job import classified, declare
from .workload import Card, Made, Preset, Values, Workload

_BATCHES = 4  # in the pool


def model(options: Values, hyper: Values) -> torch.nn.Module:
    models, arch = import_torchvision().models, options["arch"]
    if arch not in (every := models.list_models(module=models)):
        known = ", ".join(name for name in every if name.startswith("resnet"))
        raise InvalidArgument(
            f"arch {arch!r} is not a classifier of torchvision{did_you_mean(arch, every)}; available: {known} and more"
        )
    if torch.cuda.is_available():  # elsewhere it would only be a setting that differs from another run's
        torch.backends.cudnn.benchmark = True  # as in the original
    made: torch.nn.Module = models.get_model(arch, weights=None)
    return made


def photographs(config: JobConfig, options: Values, scope: str = "student") -> Pooled:
    """Normalised images `[N, 3, H, W]` and their classes `[N]`."""
    if options["image_size"] < 1:
        raise InvalidArgument(f"image_size {options['image_size']} is below 1")
    place = distributed.place_of(scope)
    pool = imagenet.pool(
        config.data, config.dataroot, config.batch_size, _BATCHES, options["image_size"], augment=True,
        seed=config.data_seed, workers=options["workers"], rank=place.rank, world_size=place.world_size,
    )  # fmt: skip
    made = [(x.to(config.device), y.to(config.device)) for x, y in map(_normalized, pool.batches)]
    return Pooled(made, pool.origin.record())


def files(config: JobConfig, options: Values, scope: str = "student") -> Any:
    place = distributed.place_of(scope)
    loader, origin = imagenet.stream(
        config.data, config.dataroot, config.batch_size, options["image_size"], augment=True, seed=config.data_seed,
        workers=options["workers"], rank=place.rank, world_size=place.world_size,
    )  # fmt: skip
    return loader, _normalized, origin


def _normalized(batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
    mean, deviation = (torch.tensor(value).view(3, 1, 1) for value in (imagenet.MEAN, imagenet.DEVIATION))
    return (batch[0] - mean) / deviation, batch[1]


def _presets(batch_size: int, repeat: int, **tiny: Any) -> dict[str, Preset]:
    small = {"workers": 1, "image_size": 64, **tiny}
    return {
        "quick": Preset(3, 2, batch_size=2, plan=(1, 2), budget_s=40.0, observed=(6, 1), options=small),
        "default": Preset(
            3, 4, batch_size=8, plan=(1, 2, 4), budget_s=95.0,
            options={"arch": "resnet18", "image_size": 64}, cuda={"iters_per_epoch": 50},
        ),
        "baselines": Preset(3, 300, batch_size=batch_size, repeats=3, max_num_Bs=4, observed=(repeat, 5)),
    }  # fmt: skip


_CARD = Card(
    "image classification",
    "torchvision's ResNet-101, random weights, 224 x 224",
    source=("he2016", "russakovsky2015", "mila2019"),
    about=(FROM_MEMORY,),
    changes=(REAL_PHOTOGRAPHS,),
)
_IN_HALF = (
    "torch.amp instead of apex, which is archived",
    "the loss scale settles before the timed window: a skipped step is no work of the optimizer's",
)
CONVNET = Workload(
    name="convnet",
    description="ResNet-101, images of 224 x 224",
    unit="images",
    options={"arch": "resnet101", "lr": 0.1, "workers": 8, "image_size": 224},
    model=model,
    data=photographs,
    loss=classified,
    optimizer=Made("SGD", {"lr": "lr"}),
    hyper={"lr": 0.1},
    files=files,
    presets=_presets(64, 30),
    card=_CARD,
)
# Most CPUs have no fp16 arithmetic: two images of 64 x 64 take ResNet-101 16 s there, 0.5 s in fp32 or bf16. Of two
# images of 32 x 32 the last norm sees two values, whose gradients at the own learning rate often end in NaN.
_HALF_TINY = {"image_size": 32, "arch": "resnet18", "lr": 0.01}
_EVERYWHERE: dict[str, Any] = {
    "spread": True,
    "data": functools.partial(photographs, scope="all"),
    "files": functools.partial(files, scope="all"),
}
_HALF = replace(
    CONVNET,
    name="convnet_fp16",
    description="ResNet-101 in half precision",
    precision="fp16",
    presets=_presets(128, 20, **_HALF_TINY),
    card=_CARD._replace(source=(*_CARD.source, "micikevicius2018"), about=(FROM_MEMORY, *_IN_HALF)),
)
for _workload in (
    CONVNET,
    _HALF,
    replace(
        CONVNET,
        name="convnet_distributed",
        description="ResNet-101 on every device of the machine",
        **_EVERYWHERE,
        card=_CARD._replace(source=(*_CARD.source, "li2020"), about=(FROM_MEMORY, ON_EVERY_DEVICE)),
    ),
    replace(
        _HALF,
        name="convnet_distributed_fp16",
        description="ResNet-101 in half precision on every device of the machine",
        presets=_presets(128, 30, **_HALF_TINY),
        **_EVERYWHERE,
        card=_CARD._replace(
            source=(*_CARD.source, "micikevicius2018", "li2020"), about=(FROM_MEMORY, ON_EVERY_DEVICE, *_IN_HALF)
        ),
    ),
):
    declare(_workload)
