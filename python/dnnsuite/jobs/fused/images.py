# SPDX-License-Identifier: MIT
"""Classifiers of images of 32 x 32: HFTA's MobileNetV3-Small, MobileNetV3-Large and ResNet-18 on CIFAR-10.

The MobileNets are torchvision's. HFTA's squeeze and excite before the activation in the blocks that expand, which
neither the paper nor torchvision does; the parameters are as many.
"""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Callable

from ... import data
from ..._lazy import torch
from .._job import JobConfig
from ..declared_job import accuracy, classified, declare
from ..workload import Card, Metric, Preset, Values, Workload, models
from . import samplers


def small(options: Values, hyper: Values) -> torch.nn.Module:
    return _torchvision("mobilenet_v3_small", options)


def large(options: Values, hyper: Values) -> torch.nn.Module:
    return _torchvision("mobilenet_v3_large", options)


def _torchvision(name: str, options: Values) -> torch.nn.Module:
    make: Callable[..., torch.nn.Module] = getattr(data.import_torchvision().models, name)
    return make(num_classes=data.cifar.CIFAR10_CLASSES, width_mult=options["width_mult"])


def resnet(options: Values, hyper: Values) -> models.ResNet:
    return models.ResNet18(data.cifar.CIFAR10_CLASSES, options["width"])


def images_and_classes(config: JobConfig, options: Values, train: bool = True) -> data.batches.ArrayBatches:
    """Images `[N, 3, 32, 32]`, normalised as ImageNet's are, and classes `[N]`; of the test part with `train` False."""
    found = data.cifar.load_cifar10(config.data, config.dataroot, config.data_seed, train)
    mean, deviation = (torch.tensor(x).view(3, 1, 1) for x in (data.imagenet.MEAN, data.imagenet.DEVIATION))

    def prepare(generator: torch.Generator, images: torch.Tensor, classes: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (images.float() / 255 - mean) / deviation, classes.long()

    return data.batches.ArrayBatches(
        torch.tensor(found.images), torch.tensor(found.labels), batch_size=config.batch_size,
        seed=config.data_seed, record=found.origin.record(), prepare=prepare,
    )  # fmt: skip


def _rate(generator: random.Random) -> dict[str, float]:
    return {"lr": generator.uniform(0.1, 10.0)}


_SMALL_CARD = Card(
    "image classification",
    "torchvision's MobileNetV3-Small, 10 classes, 32 x 32",
    source=("howard2019", "krizhevsky2009", "wang2021"),
    about=(
        samplers.DECLARED,
        samplers.ITERATIONS,
        "squeeze and excite follows the activation, as in the paper: HFTA has it before",
    ),
)
SMALL = Workload(
    name="mobilenet_v3_small",
    description="MobileNetV3-Small on images of 32 x 32, Adam + StepLR",
    unit="images",
    options={"width_mult": 1.0},
    hyper=samplers.ADAM_MIDDLE,
    sample=samplers.adam,
    model=small,
    data=images_and_classes,
    loss=classified,
    held_out=functools.partial(images_and_classes, train=False),
    metric=Metric("accuracy", accuracy),
    optimizer=samplers.ADAM,
    schedule=samplers.STEPS,
    presets={
        "quick": Preset(3, 8, batch_size=8, plan=(1, 4), budget_s=40.0, options={"width_mult": 0.5}),
        "default": Preset(3, 4, batch_size=64, plan=(1, 2, 4), budget_s=95.0, cuda=samplers.ON_CUDA),
        "paper": Preset(20, 500, batch_size=1024, repeats=3, max_num_Bs=10, search=samplers.LONG_SEARCH),
    },
    card=_SMALL_CARD,
)
LARGE = dataclasses.replace(
    SMALL,
    name="mobilenet_v3_large",
    description="MobileNetV3-Large on images of 32 x 32, Adam + StepLR",
    model=large,
    card=_SMALL_CARD._replace(model="torchvision's MobileNetV3-Large, 10 classes, 32 x 32"),
)
RESNET = dataclasses.replace(
    SMALL,
    name="resnet",
    description="ResNet-18 on images of 32 x 32, Adadelta",
    options={"width": 64},
    hyper={"lr": 1.0},
    sample=_rate,
    model=resnet,
    optimizer=samplers.ADADELTA,
    schedule=None,
    # The order in which HFTA leaves them unfused: blocks, classifier, stem.
    units=(*([f"layer{i}.{j}"] for i in (1, 2, 3, 4) for j in (0, 1)), ["fc"], ["conv1", "bn1", "relu", "maxpool"]),
    presets={
        "quick": Preset(3, 8, batch_size=8, plan=(1, 4), budget_s=40.0, options={"width": 16}),
        "default": Preset(3, 4, batch_size=64, plan=(1, 2, 4), budget_s=95.0, cuda=samplers.ON_CUDA),
        "paper": Preset(5, 1000, batch_size=128, repeats=3, max_num_Bs=10),
    },
    card=Card(
        "image classification",
        "ResNet-18 without average pool, 10 classes, 32 x 32",
        source=("he2016", "krizhevsky2009", "zeiler2012", "wang2021"),
        about=(samplers.DECLARED, "iterations per epoch are those asked for: HFTA parses the flag and does not use it"),
    ),
)

for workload in (SMALL, LARGE, RESNET):
    declare(workload)
