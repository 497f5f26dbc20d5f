# SPDX-License-Identifier: MIT
"""PointNet (Qi et al., CVPR 2017): the class of a cloud of points, and the part of a chair that each point is of."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from ... import data, models
from .._workload import JobConfig
from ..declared_job import declare, widened
from ..fused_workload import FusedWorkload, Preset, Values
from . import samplers

_ORTHOGONALITY = 0.001  # weight of the feature transforms' distance from rotations


def classifier(options: Values, hyper: Values) -> models.PointNetClassifier:
    classes, transform = len(data.point_clouds.SOLIDS), options["feature_transform"]
    return models.PointNetClassifier(classes, transform, options["dropout"], options["width"])


def segmenter(options: Values, hyper: Values) -> models.PointNetSegmenter:
    classes, transform = len(data.point_clouds.CHAIR_PARTS), options["feature_transform"]
    return models.PointNetSegmenter(classes, transform, options["width"])


def solids(config: JobConfig, options: Values) -> data.batches.ArrayBatches:
    """Points `[N, 3, P]` and classes `[N]`."""
    return _batches(data.point_clouds.solids(config.data, 1024, options["points"], config.data_seed), config)


def chairs(config: JobConfig, options: Values) -> data.batches.ArrayBatches:
    """Points `[N, 3, P]` and their parts `[N, P]`."""
    return _batches(data.point_clouds.chairs(config.data, 256, options["points"], config.data_seed), config)


def _batches(clouds: data.point_clouds.Clouds, config: JobConfig) -> data.batches.ArrayBatches:
    return data.batches.ArrayBatches(
        torch.from_numpy(clouds.points), torch.from_numpy(clouds.labels), batch_size=config.batch_size,
        seed=config.data_seed, record=clouds.origin.record(),
    )  # fmt: skip


def loss(model: Any, points: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of the clouds or of their points, and the distance of the feature transforms from rotations."""
    logits, transform = model(points)
    error = torch.nn.functional.cross_entropy(widened(logits).flatten(0, -2), labels.flatten())
    if transform is None:
        return error
    return error + _ORTHOGONALITY * models.orthogonality_loss(widened(transform))


_QUICK = {"points": 256, "width": 256}
CLASSIFY = FusedWorkload(
    name="pointnet_cls",
    description="PointNet that classifies clouds of points, Adam + StepLR",
    unit="clouds",
    options={"points": 2500, "width": 1024, "feature_transform": True, "dropout": 0.3},
    hyper=samplers.ADAM_MIDDLE,
    sample=samplers.adam,
    model=classifier,
    data=solids,
    loss=loss,
    optimizer=samplers.ADAM,
    schedule=samplers.STEPS,
    presets={
        "quick": Preset(3, 8, batch_size=8, plan=(1, 2, 4), options=_QUICK),
        "default": Preset(3, 8, batch_size=8, max_B=4, max_num_Bs=4, options=_QUICK, cuda=samplers.ON_CUDA),
        "paper": Preset(5, 1000, max_num_Bs=10),
    },
)
SEGMENT = dataclasses.replace(
    CLASSIFY,
    name="pointnet_seg",
    description="PointNet that finds the parts of chairs in clouds of points, Adam + StepLR",
    options={"points": 2500, "width": 1024, "feature_transform": True},
    model=segmenter,
    data=chairs,
    presets={**CLASSIFY.presets, "paper": Preset(10, 1000, max_num_Bs=10)},
)

for workload in (CLASSIFY, SEGMENT):
    declare(workload)
