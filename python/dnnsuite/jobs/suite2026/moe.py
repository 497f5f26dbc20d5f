# SPDX-License-Identifier: MIT
"""A sparse mixture of experts learns text. With a capacity the shapes do not depend on the data.

The experts are no good if all tokens go to a few of them, so that the measure of quality is infinite where one has
more than three times its share.
"""

from __future__ import annotations

import math
from typing import Any

from ..._lazy import functional as F
from ..._lazy import torch
from ..declared_job import declare
from ..workload import Card, Made, Metric, Rate, Values, Workload, models, sizes
from .decoder import OF_TEXT, PAGES, SIZES, flops_per_token

_BALANCE = 0.01  # weight of the loss that spreads the tokens
_MOST = 3.0  # times its share that an expert may have


def loss(model: Any, tokens: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    logits, balance, _ = model(tokens)
    return F.cross_entropy(models.widened(logits).flatten(0, 1), following.flatten()) + _BALANCE * balance


def balanced_bits(model: Any, tokens: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    """Bits per token; infinite where an expert has more than three times its share."""
    logits, _, greatest = model(tokens)
    found = F.cross_entropy(models.widened(logits).flatten(0, 1), following.flatten()) / math.log(2)
    return torch.where(greatest <= _MOST, found, torch.full_like(found, math.inf))


def flops(options: Values) -> float:
    seats = models.experts.CAPACITY * models.experts.CHOSEN
    return flops_per_token({**options, "ff": seats * options["ff"]})


declare(
    Workload(
        name="moe",
        description="experts with a router: gather, scatter, small products",
        **OF_TEXT,
        options={**SIZES, "ff": 96, "experts": 8},
        model=lambda options, hyper: models.Mixture(options),
        loss=loss,
        metric=Metric("balanced bits per token", balanced_bits, "less", {"quick": 3.6, "default": 3.0}, batches=1),
        optimizer=Made("AdamW", {"lr": "lr", "betas": (0.9, 0.95), "weight_decay": 0.1}),
        hyper={"lr": 3e-3},
        rate=Rate(warmup=0.1, constant=0.1, shape="cosine"),
        flops_per_item=flops,
        presets=sizes(
            (50, 8), (200, 32), (1500, 32), num_Bs=4,
            layers=12, width=768, heads=6, kv_heads=6, ff=1536, vocab=50_304, length=1024,
        ),
        card=Card(
            "language modelling",
            "decoder 12 x 768, 8 experts of 1536, the best 2 for each token, capacity 1.5",
            source=("fedus2022",),
            about=("sizes of gpt-oss cut down to one GPU: the form is measured, not the size", PAGES),
        ),
    )
)  # fmt: skip
