# SPDX-License-Identifier: MIT
"""Jobs on photographs, whose batches come from a pool on the device; a second rate has a loader in the timed loop.

`convnet` and its kind are torchvision's image classifiers, in single and in half precision, on one device or on all:
gradient descent. `arch` has random weights and learns 1000 classes. Of several processes each has images of its own,
`batch_size` of them.

`dcgan` is DCGAN (Radford, Metz and Chintala, ICLR 2016): a generator and a discriminator, each with an Adam. In each
step the discriminator learns first. `dcgan_all` has one process per device, with pictures and noise of its own.

`fast_style` is a network that learns to give photographs the style of a picture: TransformerNet judged by VGG-16's
features. Content is compared at relu2_2, style by Gram matrices. Options beside the original's: `style_image`, a file
(else a picture of 1/f noise), and `weights`, a file of torchvision's vgg16 (else they are random, which takes the same
time to compute and means nothing).
"""

from __future__ import annotations

import functools
import pickle
import random
from dataclasses import replace
from typing import Any

from .._lazy import Image, torch
from .._lazy import numpy as np
from ..data import batches, imagenet, import_torchvision, photographs
from ..data.batches import Pooled
from ..errors import InvalidArgument, did_you_mean
from . import distributed
from ._job import JobConfig
from .cards import FROM_MEMORY, ON_EVERY_DEVICE, REAL_PHOTOGRAPHS
from .declared_job import classified, declare
from .fused import ON_CUDA
from .workload import Card, Made, Preset, Values, Workload, models

_BATCHES = 4  # in the pool


def classifier(options: Values, hyper: Values) -> torch.nn.Module:
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


def _pooled(config: JobConfig, options: Values, prepare: Any, scope: str = "student", augment: bool = False) -> Pooled:
    place = distributed.place_of(scope)
    pool = imagenet.pool(
        config.data, config.dataroot, config.batch_size, _BATCHES, options["image_size"], augment=augment,
        seed=config.data_seed, workers=options["workers"], rank=place.rank, world_size=place.world_size,
    )  # fmt: skip
    made = [tuple(x.to(config.device) for x in batch) for batch in map(prepare, pool.batches)]
    return Pooled(made, pool.origin.record())


def _streamed(
    config: JobConfig, options: Values, prepare: Any, scope: str = "student", size: int = 0, augment: bool = False
) -> Any:
    place = distributed.place_of(scope)
    loader, origin = imagenet.stream(
        config.data, config.dataroot, config.batch_size, size or options["image_size"], augment=augment,
        seed=config.data_seed, workers=options["workers"], rank=place.rank, world_size=place.world_size,
    )  # fmt: skip
    return loader, prepare, origin


def classified_photographs(config: JobConfig, options: Values, scope: str = "student") -> Pooled:
    """Normalised images `[N, 3, H, W]` and their classes `[N]`."""
    if options["image_size"] < 1:
        raise InvalidArgument(f"image_size {options['image_size']} is below 1")
    return _pooled(config, options, _normalized, scope, augment=True)


def classified_files(config: JobConfig, options: Values, scope: str = "student") -> Any:
    return _streamed(config, options, _normalized, scope, augment=True)


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


_CONVNET_CARD = Card(
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
    model=classifier,
    data=classified_photographs,
    loss=classified,
    optimizer=Made("SGD", {"lr": "lr"}),
    hyper={"lr": 0.1},
    files=classified_files,
    presets=_presets(64, 30),
    card=_CONVNET_CARD,
)
# Most CPUs have no fp16 arithmetic: two images of 64 x 64 take ResNet-101 16 s there, 0.5 s in fp32 or bf16. Of two
# images of 32 x 32 the last norm sees two values, whose gradients at the own learning rate often end in NaN.
_HALF_TINY = {"image_size": 32, "arch": "resnet18", "lr": 0.01}
_EVERYWHERE: dict[str, Any] = {
    "spread": True,
    "data": functools.partial(classified_photographs, scope="all"),
    "files": functools.partial(classified_files, scope="all"),
}
_HALF = replace(
    CONVNET,
    name="convnet_fp16",
    description="ResNet-101 in half precision",
    precision="fp16",
    presets=_presets(128, 20, **_HALF_TINY),
    card=_CONVNET_CARD._replace(source=(*_CONVNET_CARD.source, "micikevicius2018"), about=(FROM_MEMORY, *_IN_HALF)),
)
for _workload in (
    CONVNET,
    _HALF,
    replace(
        CONVNET,
        name="convnet_distributed",
        description="ResNet-101 on every device of the machine",
        **_EVERYWHERE,
        card=_CONVNET_CARD._replace(source=(*_CONVNET_CARD.source, "li2020"), about=(FROM_MEMORY, ON_EVERY_DEVICE)),
    ),
    replace(
        _HALF,
        name="convnet_distributed_fp16",
        description="ResNet-101 in half precision on every device of the machine",
        presets=_presets(128, 30, **_HALF_TINY),
        **_EVERYWHERE,
        card=_CONVNET_CARD._replace(
            source=(*_CONVNET_CARD.source, "micikevicius2018", "li2020"),
            about=(FROM_MEMORY, ON_EVERY_DEVICE, *_IN_HALF),
        ),
    ),
):
    declare(_workload)


_SIZE = 64


def images_and_noise(config: JobConfig, options: Values, scope: str = "student") -> batches.ArrayBatches:
    """Images `[N, 3, 64, 64]` in [-1, 1] and noise `[N, nz, 1, 1]`."""
    if options["imageSize"] != _SIZE:
        raise InvalidArgument(f"imageSize {options['imageSize']}: the layers of DCGAN are for images of {_SIZE}")
    found = photographs.load_crops(config.data, config.dataroot, _SIZE, seed=config.data_seed)
    place = distributed.place_of(scope)

    def prepare(generator: torch.Generator, images: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return images.float() / 127.5 - 1, _noise(len(images), options, generator)

    return batches.ArrayBatches(
        torch.from_numpy(found.images).to(config.device), batch_size=config.batch_size,
        seed=config.data_seed + (place.rank << 32), record=found.origin.record(), prepare=prepare,
    )  # fmt: skip


def dcgan_files(config: JobConfig, options: Values, scope: str = "student") -> Any:
    return _streamed(
        config, options, lambda batch: (batch[0] * 2 - 1, _noise(len(batch[0]), options, None)), scope, _SIZE
    )


def _noise(count: int, options: Values, generator: torch.Generator | None) -> torch.Tensor:
    return torch.randn(count, options["nz"], 1, 1, generator=generator)


def judged(gan: Any, real: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of the discriminator on real images and on the generator's."""
    softplus = torch.nn.functional.softplus
    found, made = models.widened(gan.discriminator(real)), models.widened(gan.discriminator(gan.generator(noise)))
    return softplus(-found).mean() + softplus(made).mean()


def passed(gan: Any, real: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of the generator's images with the label of real ones."""
    return torch.nn.functional.softplus(-models.widened(gan.discriminator(gan.generator(noise)))).mean()


def sample(generator: random.Random) -> dict[str, float]:
    """Draw from HFTA's ranges."""
    return {"lr": generator.uniform(1e-4, 1e-3), "beta1": generator.uniform(0.3, 0.99)}


_DCGAN_CARD = Card(
    "generative",
    "DCGAN, width 64, noise of 100",
    source=("radford2016", "yu2015", "wang2021", "mila2019"),
    about=(
        FROM_MEMORY,
        "HFTA's form: each network has a loss of its own, for which the generator draws",
        "errors are fetched once for each observation: the original's three waits in each step are no part of training",
    ),
    changes=(
        "one job for `run` and `workflow`: the generator draws once for each network's step, photographs change with "
        "every batch (numbers)",
        REAL_PHOTOGRAPHS,
    ),
)
DCGAN = Workload(
    name="dcgan",
    description="DCGAN on images of 64 x 64, two Adams",
    unit="images",
    options={"imageSize": _SIZE, "nz": 100, "ngf": 64, "ndf": 64, "lr": 2e-4, "beta1": 0.5, "workers": 8},
    hyper={"lr": 2e-4, "beta1": 0.5},
    sample=sample,
    model=lambda options, hyper: models.GAN(options["nz"], options["ngf"], options["ndf"]),
    data=images_and_noise,
    loss={"discriminator": judged, "generator": passed},
    optimizer=Made("Adam", {"lr": "lr", "betas": ("beta1", 0.999)}),
    presets={
        "quick": Preset(
            3, 16, batch_size=4, plan=(1, 4), budget_s=40.0, observed=(12, 1),
            options={"ngf": 16, "ndf": 16, "workers": 1},
        ),
        "default": Preset(
            3, 4, batch_size=16, plan=(1, 2, 4), budget_s=95.0, options={"ngf": 16, "ndf": 16}, cuda=ON_CUDA
        ),
        "paper": Preset(5, 300, batch_size=128, repeats=3, max_num_Bs=10),
        "baselines": Preset(5, 300, batch_size=128, observed=(50, 10)),
    },
    files=dcgan_files,
    card=_DCGAN_CARD,
)  # fmt: skip

declare(DCGAN)
declare(
    replace(
        DCGAN,
        name="dcgan_all",
        description="DCGAN on every device of the machine",
        data=functools.partial(images_and_noise, scope="all"),
        files=functools.partial(dcgan_files, scope="all"),
        spread=True,
        card=_DCGAN_CARD._replace(source=(*_DCGAN_CARD.source, "li2020"), about=(*_DCGAN_CARD.about, ON_EVERY_DEVICE)),
    )
)


def styler(options: Values, hyper: Values) -> torch.nn.Module:
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
    return _pooled(config, options, _to_255)


def _to_255(batch: Any) -> tuple[torch.Tensor]:
    return (batch[0] * 255,)


def normalized(images: torch.Tensor) -> torch.Tensor:
    """Normalise images `[N, 3, H, W]` of 0 to 255 as networks trained on ImageNet expect."""
    mean, deviation = (images.new_tensor(value).view(3, 1, 1) for value in (imagenet.MEAN, imagenet.DEVIATION))
    return (images / 255 - mean) / deviation


def style_loss(model: Any, images: torch.Tensor) -> torch.Tensor:
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
        model=styler,
        data=pictures,
        loss=style_loss,
        optimizer=Made("Adam", {"lr": "lr"}),
        hyper={"lr": 1e-3},
        files=lambda config, options: _streamed(config, options, _to_255),
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
