# SPDX-License-Identifier: MIT
"""Learning without labels, DINO (Caron et al., 2021): a student says of small crops what a teacher says of large ones.

The teacher is the average of the student's weights; its answers are spread over all prototypes by the Sinkhorn-Knopp
iteration. A crop is a part of a picture of its own contrast, in noise. The measure is the accuracy of the ten nearest
neighbours among labelled crops, by features of the teacher: chance, where it gives all crops one answer.
"""

from __future__ import annotations

from typing import Any

from ..._lazy import functional as F
from ..._lazy import torch
from ...data.batches import ArrayBatches, WholeBatch
from .._job import JobConfig
from ..declared_job import declare
from ..workload import Card, Made, Metric, Rate, Values, Workload, models, sizes
from .vision import IN_PLACE_OF_IMAGENET, crops, encoder_flops, follow, pictures

_NOISE = 0.3
_LARGE, _SMALL, _JUDGED = (0.4, 1.0), (0.2, 0.4), (0.7, 1.0)  # parts of a picture's area
_TEACHER, _STUDENT = 0.02, 0.1  # temperatures
_NEIGHBOURS, _NEAR = 10, 0.07  # that vote, with a weight by the similarity over this
_KNOWN = 1024  # labelled crops, and half as many that are judged


def loss(model: Any, large: torch.Tensor, small: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of each crop with the teacher's answer to each other large crop of the same picture."""
    views, crops = large.shape[1], large.shape[1] + small.shape[1]
    student, said = (
        models.widened(x) for x in model(large.transpose(0, 1).flatten(0, 1), small.transpose(0, 1).flatten(0, 1))
    )
    answers = models.spread(said, _TEACHER).chunk(views)
    logs = (student / _STUDENT).log_softmax(-1).chunk(crops)
    terms = [-(answer * log).sum(-1).mean() for i, answer in enumerate(answers) for j, log in enumerate(logs) if i != j]
    return torch.stack(terms).mean()


def neighbours(
    model: Any, known: torch.Tensor, classes: torch.Tensor, x: torch.Tensor, kind: torch.Tensor
) -> torch.Tensor:
    """Share of crops whose class most of their neighbours have."""
    (near, _), (far, _) = model(known), model(x)
    similar, place = (F.normalize(models.widened(far), dim=-1) @ F.normalize(models.widened(near), dim=-1).t()).topk(
        _NEIGHBOURS
    )
    votes = (F.one_hot(classes, 10)[place] * (similar / _NEAR).exp()[..., None]).sum(1)
    return (votes.argmax(-1) == kind).to(votes.dtype).mean()


def views(config: JobConfig, options: Values) -> ArrayBatches:
    """Two large crops `[N, 2, C, S, S]` of each picture, and small ones `[N, L, C, s, s]`."""

    def prepare(generator: torch.Generator, x: torch.Tensor, classes: torch.Tensor) -> tuple[torch.Tensor, ...]:
        large = [crops(x, _LARGE, options["size"], _NOISE, generator) for _ in range(2)]
        small = [crops(x, _SMALL, options["local"], _NOISE, generator) for _ in range(options["locals"])]
        return torch.stack(large, 1), torch.stack(small, 1)

    return pictures(config, options, prepare=prepare)


def labelled(config: JobConfig, options: Values) -> WholeBatch:
    """Crops of pictures to train on with their classes, and crops of held-out pictures with theirs."""
    generator, parts = torch.Generator().manual_seed(1983), []
    for train, count in ((True, _KNOWN), (False, _KNOWN // 2)):
        own = JobConfig(batch_size=count, data=config.data, dataroot=config.dataroot, data_seed=config.data_seed)
        batches = pictures(own, options, train)
        x, kind = batches.batch(0)
        parts += [crops(x, _JUDGED, options["size"], _NOISE, generator), kind]
    return WholeBatch(tuple(parts), batches.record)


def flops(options: Values) -> float:
    """Forward and backward of the student, forward of the teacher, and of both heads."""
    hidden, neck = options["hidden"], options["bottleneck"]
    head = hidden * (options["width"] + options["deep"] * hidden + neck) + neck * options["prototypes"]
    small = {**options, "size": options["local"]}
    seen = 2 * encoder_flops(options) * 4 / 3 + options["locals"] * encoder_flops(small)
    return seen + head * (6.0 * (2 + options["locals"]) + 2 * 2)


declare(
    Workload(
        name="dino",
        description="self-supervision: a student, a teacher, many small crops",
        unit="images",
        options={
            "layers": 1, "width": 64, "heads": 4, "patch": 8, "size": 32, "local": 16, "locals": 2, "channels": 1,
            "hidden": 128, "deep": 0, "bottleneck": 64, "prototypes": 64, "momentum": 0.95,
        },
        model=lambda options, hyper: models.Dino(models.Student(options), options["momentum"]),
        data=views,
        loss=loss,
        held_out=labelled,
        metric=Metric("neighbours' accuracy", neighbours, "more", {"quick": 0.45, "default": 0.5}, batches=1),
        optimizer=Made("AdamW", {"lr": "lr", "weight_decay": 0.04}),
        hyper={"lr": 4e-3},
        rate=Rate(warmup=0.1, constant=0.1, shape="cosine"),
        clip_norm=3.0,
        after_step=follow,
        flops_per_item=flops,
        presets=sizes(
            (110, 64), (500, 64), (100, 64), layers=12, width=384, heads=6, patch=14, size=224, local=98, locals=8,
            channels=3, hidden=2048, deep=1, bottleneck=256, prototypes=65_536, momentum=0.996,
        ),
        card=Card(
            "image classification",
            "ViT-S/14 and an average of it: 12 x 384, 6 heads, 224 x 224, 8 small crops of 98; 65536 prototypes",
            source=("caron2021",),
            about=(
                "the published count is of the backbone: head and prototypes have 22.3 M more, and the teacher as many",
                f"{IN_PLACE_OF_IMAGENET}; crops differ in place, size, contrast and noise, not in colour",
                "answers are spread over the prototypes as in DINOv2, in place of a moving centre",
                "decay and the teacher's momentum are constant: a schedule by steps is one of learning rates",
                "class token and patches are averaged, and the head has batch norms: at quick size, features learn "
                "faster so",
                "neighbours are sought among crops in noise: on whole pictures, features of untrained weights were as "
                "good as learned ones",
            ),
            parameters=21.6,
        ),
    )
)  # fmt: skip
