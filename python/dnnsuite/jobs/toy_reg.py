# SPDX-License-Identifier: MIT
"""A linear model of [x, x², x³, x⁴] fits a polynomial that is drawn from the seed; smooth-L1 loss, gradient descent."""

from __future__ import annotations

from typing import Any

from .._lazy import torch
from ..data.batches import BatchesInTurn
from ._job import JobConfig
from .declared_job import declare
from .workload import Card, Made, Metric, Preset, Values, Workload

_DEGREE = 4
_HELD_OUT = 1 << 32  # added to the seed of points that are not trained on


def points(config: JobConfig, options: Values, held_out: int = 0) -> BatchesInTurn:
    """Powers `[N, 4]` of random x and the polynomial's values `[N, 1]`."""

    def begin() -> Any:
        generator = torch.Generator().manual_seed(config.seed)
        weight = torch.randn(_DEGREE, 1, generator=generator) * 5
        bias = torch.randn(1, generator=generator) * 5
        if held_out:
            generator.manual_seed(config.seed + held_out)

        def draw() -> tuple[torch.Tensor, torch.Tensor]:
            x = torch.randn(config.batch_size, 1, generator=generator)
            powers = torch.cat([x**k for k in range(1, _DEGREE + 1)], 1)
            return powers, powers @ weight + bias

        return draw

    return BatchesInTurn(begin, {"source": "synthetic: a polynomial drawn from the seed"})


def loss(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.smooth_l1_loss(model(x), y)


declare(
    Workload(
        name="toy_reg",
        description="Linear(4, 1) fits a polynomial of degree 4",
        unit="samples",
        model=lambda options, hyper: torch.nn.Linear(_DEGREE, 1),
        data=points,
        loss=loss,
        held_out=lambda config, options: points(config, options, _HELD_OUT),
        metric=Metric("held_out_loss", loss, "less"),
        optimizer=Made("SGD", {"lr": "lr"}),
        hyper={"lr": 0.01},
        half=(),
        presets={
            "quick": Preset(3, 20, batch_size=256, plan=(1, 4), budget_s=40.0, observed=(20, 20)),
            "default": Preset(3, 100, batch_size=256, plan=(1, 2, 4), budget_s=95.0, observed=(20, 1000)),
        },
        card=Card(
            "regression",
            "Linear(4, 1) of x, x², x³, x⁴; smooth-L1 loss",
            source=("mila2019",),
            about=("none in what is timed: batches are drawn on the CPU in the loop, as the original's are",),
        ),
    )
)
