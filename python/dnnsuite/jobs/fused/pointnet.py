# SPDX-License-Identifier: MIT
"""PointNet (Qi et al., CVPR 2017): the class of a cloud of points, and the part of a chair that each point is of."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from ... import data
from ..._lazy import torch
from .._job import JobConfig
from ..declared_job import declare
from ..workload import Card, Metric, Preset, Values, Workload, models
from . import samplers

_HELD_OUT_SEED = 1 << 32  # beyond the seeds of training
_ORTHOGONALITY = 0.001  # weight of the feature transforms' distance from rotations


def classifier(options: Values, hyper: Values) -> models.PointNetClassifier:
    classes, transform = len(data.point_clouds.SOLIDS), options["feature_transform"]
    return models.PointNetClassifier(classes, transform, options["dropout"], options["width"])


def segmenter(options: Values, hyper: Values) -> models.PointNetSegmenter:
    classes, transform = len(data.point_clouds.CHAIR_PARTS), options["feature_transform"]
    return models.PointNetSegmenter(classes, transform, options["width"])


def solids(config: JobConfig, options: Values, train: bool = True) -> data.batches.ArrayBatches:
    """Points `[N, 3, P]` and classes `[N]`: ShapeNet's sixteen categories, else as many analytic solids."""
    shapes = data.point_clouds.load_shapes(config.data, config.dataroot, "train" if train else "test")
    if shapes is not None:
        return data.point_clouds.shape_batches(shapes, options["points"], config.batch_size, config.data_seed)
    return _drawn(data.point_clouds.solids, 1024, config, options, train)


def chairs(config: JobConfig, options: Values, train: bool = True) -> data.batches.ArrayBatches:
    """Points `[N, 3, P]` and their parts `[N, P]`: ShapeNet's chairs, else chairs made of boxes."""
    shapes = data.point_clouds.load_shapes(config.data, config.dataroot, "train" if train else "test", "Chair")
    if shapes is not None:
        parts = len(data.point_clouds.CHAIR_PARTS)
        return data.point_clouds.shape_batches(shapes, options["points"], config.batch_size, config.data_seed, parts)
    return _drawn(data.point_clouds.chairs, 256, config, options, train)


def _drawn(draw: Any, count: int, config: JobConfig, options: Values, train: bool) -> data.batches.ArrayBatches:
    seed = config.data_seed if train else config.data_seed + _HELD_OUT_SEED
    clouds = draw(config.data, count, options["points"], seed)
    return data.batches.ArrayBatches(
        torch.from_numpy(clouds.points), torch.from_numpy(clouds.labels), batch_size=config.batch_size,
        seed=config.data_seed, record=clouds.origin.record(),
    )  # fmt: skip


def loss(model: Any, points: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of the clouds or of their points, and the distance of the feature transforms from rotations."""
    logits, transform = model(points)
    error = torch.nn.functional.cross_entropy(models.widened(logits).flatten(0, -2), labels.flatten())
    if transform is None:
        return error
    return error + _ORTHOGONALITY * models.orthogonality_loss(models.widened(transform))


def accuracy(model: Any, points: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Share of the clouds, or of their points, with the right label."""
    return (model(points)[0].argmax(-1) == labels).float().mean()


_QUICK = {"points": 256, "width": 256}
CLASSIFY = Workload(
    name="pointnet_cls",
    description="PointNet that classifies clouds of points, Adam + StepLR",
    unit="clouds",
    options={"points": 2500, "width": 1024, "feature_transform": True, "dropout": 0.3},
    hyper=samplers.ADAM_MIDDLE,
    sample=samplers.adam,
    model=classifier,
    data=solids,
    loss=loss,
    held_out=functools.partial(solids, train=False),
    metric=Metric("accuracy", accuracy),
    optimizer=samplers.ADAM,
    schedule=samplers.STEPS,
    presets={
        "quick": Preset(3, 8, batch_size=8, plan=(1, 4), budget_s=40.0, options=_QUICK),
        "default": Preset(3, 8, batch_size=8, plan=(1, 2, 4), budget_s=95.0, options=_QUICK, cuda=samplers.ON_CUDA),
        "paper": Preset(5, 1000, repeats=3, max_num_Bs=10),
    },
    card=Card(
        "point clouds",
        "PointNet with a feature transform, 16 classes, 2500 points",
        source=("qi2017", "chang2015", "wang2021"),
        about=(
            samplers.DECLARED,
            samplers.ITERATIONS,
            "clouds are sampled from sixteen analytic solids where ShapeNet is not there",
        ),
    ),
)
SEGMENT = dataclasses.replace(
    CLASSIFY,
    name="pointnet_seg",
    description="PointNet that finds the parts of chairs in clouds of points, Adam + StepLR",
    options={"points": 2500, "width": 1024, "feature_transform": True},
    model=segmenter,
    data=chairs,
    held_out=functools.partial(chairs, train=False),
    presets={**CLASSIFY.presets, "paper": Preset(10, 1000, repeats=3, max_num_Bs=10)},
    card=Card(
        "point clouds",
        "PointNet for parts with a feature transform, 4 parts, 2500 points",
        source=("qi2017", "chang2015", "wang2021"),
        about=(
            samplers.DECLARED,
            samplers.ITERATIONS,
            "clouds are sampled from chairs of boxes where ShapeNet is not there",
        ),
    ),
)

for workload in (CLASSIFY, SEGMENT):
    declare(workload)
