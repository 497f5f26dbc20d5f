# SPDX-License-Identifier: MIT
"""Small declared workloads for tests of convergence: a right one, and one whose array has a broken operator."""

from __future__ import annotations

from typing import Any

import torch

from dnnsuite import nn
from dnnsuite.jobs import JobConfig, Made, Preset, Workload, declare, register
from dnnsuite.jobs.workload import Values


class Blobs:
    """Images of three classes that can be told apart."""

    def __init__(self, config: JobConfig, options: Values) -> None:
        self.record: Values = {"source": "made up", "licence": "none"}
        self.sizes: Values = {}
        self._size, self._seed = config.batch_size, config.data_seed

    def batch(self, i: int) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator().manual_seed(1000 * self._seed + i)
        labels = torch.randint(3, (self._size,), generator=generator)
        images = torch.randn(self._size, 1, 8, 8, generator=generator) + labels[:, None, None, None]
        return images, labels


def model(options: Values, hyper: Values) -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, options["width"], 3),
        torch.nn.BatchNorm2d(options["width"]),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Dropout(0.2),
        torch.nn.Linear(36 * options["width"], 3),
    )


def loss(model: Any, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(model(images), labels)


def workload(name: str) -> Workload:
    return Workload(
        name=name,
        description="three blobs",
        unit="images",
        options={"width": 4},
        hyper={"lr": 0.1, "gamma": 0.5, "step_size": 1},
        sample=lambda generator: {"lr": generator.uniform(0.01, 0.1), "gamma": 0.5, "step_size": 1},
        model=model,
        data=Blobs,
        loss=loss,
        optimizer=Made("SGD", {"lr": "lr", "momentum": 0.9}),
        schedule=Made("StepLR", {"step_size": "step_size", "gamma": "gamma"}),
        presets={"default": Preset(2, 5, batch_size=8, repeats=2, max_B=2)},
        units=[["0", "1"], ["5"]],
    )


Right: Any = declare(workload("blobs"))


@register("broken_blobs")
class BrokenJob(Right):  # type: ignore[misc]
    """`blobs`, but the array's linear layer is wrong by a hundredth of a percent."""

    def fused(self, built: Any) -> Any:
        array = super().fused(built)
        self._right = right = nn.Linear.forward  # alone in the closure: steps look at all that it holds
        nn.Linear.forward = lambda layer, x: 1.0001 * right(layer, x)  # type: ignore[method-assign]
        return array

    def close(self) -> None:
        super().close()
        nn.Linear.forward = getattr(self, "_right", nn.Linear.forward)  # type: ignore[method-assign]
