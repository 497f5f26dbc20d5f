# SPDX-License-Identifier: MIT
"""Low-rank adapters on a frozen decoder, the form of MLPerf's fine-tuning: they learn source code.

On a base of random weights adapters learn nothing, so that the base learns the pages on the language first, while the
model is made. All models of an array have adapters of their own on equal bases.
"""

from __future__ import annotations

import math
from typing import Any

from ..._lazy import torch
from ...data import tokens
from ...data.batches import ArrayBatches
from .._job import JobConfig
from ..declared_job import declare
from ..workload import Card, Made, Metric, Rate, Values, Workload, models, sizes
from .decoder import SIZES, attention_flops, flops_per_token, loss, taught, text


def model(options: Values, hyper: Values) -> torch.nn.Module:
    """The frozen decoder with adapters on queries, values, outputs and feed-forwards."""
    base = taught(options, _pages, options["base_steps"], 1, 4e-3, Rate(warmup=0.1, constant=0.5))
    return models.adapt(base, options["rank"], scale=2.0)  # alpha = 2 r, as in MLPerf


def _pages(options: Values) -> Any:
    return text(JobConfig(batch_size=8, data_seed=1), options).batch, loss


def source_code(config: JobConfig, options: Values) -> ArrayBatches:
    return tokens.windows(tokens.modules(), options["length"], config.batch_size, config.data_seed)


def gain(model: Any, tokens: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    """Bits per byte that the adapters are better than the frozen base."""
    adapters = [part for part in model.modules() if hasattr(part, "scale")]
    own, scales = loss(model, tokens, following), [part.scale for part in adapters]
    for part in adapters:
        part.scale = 0.0
    try:
        frozen = loss(model, tokens, following)
    finally:
        for part, scale in zip(adapters, scales, strict=True):
            part.scale = scale
    return (frozen - own) / math.log(2)


def flops(options: Values) -> float:
    """Operations for a token, without gradients of the frozen weights."""
    width, shared = options["width"], options["width"] * options["kv_heads"] // options["heads"]
    adapters = options["layers"] * options["rank"] * (8 * width + shared + 3 * options["ff"])
    attention = attention_flops(options)
    return (flops_per_token(options) - attention) * 2 / 3 + attention + 6 * adapters


declare(
    Workload(
        name="lora",
        description="fine-tuning with a frozen base",
        unit="tokens",
        options={**SIZES, "layers": 3, "rank": 8, "base_steps": 90, "again": 0},
        model=model,
        data=source_code,
        loss=loss,
        held_out=lambda config, options: tokens.held_out(tokens.modules(), options["length"]),
        metric=Metric("bits better than the base", gain, "more", {"quick": 0.15, "default": 0.15}, batches=1),
        optimizer=Made("AdamW", {"lr": "lr", "weight_decay": 0.0}),
        hyper={"lr": 1e-2},
        rate=Rate(warmup=0.1, constant=0.1, shape="cosine"),
        clip_norm=1.0,
        items_per_sample=lambda options: options["length"],
        flops_per_item=flops,
        presets=sizes(
            (25, 8), (200, 8), (100, 1), layers=32, width=4096, heads=32, kv_heads=8, ff=14_336, vocab=128_256,
            length=8192, rank=16, base_steps=0, again=1,
        ),
        card=Card(
            "language modelling",
            "decoder 32 x 4096, 32 heads over 8, gated feed-forward of 14336; adapters of rank 16",
            source=("hu2022", "grattafiori2024"),
            about=(
                "the base is random at paper size: its weights are not given away with this package",
                "the head is tied to the embedding, which is 525 M fewer than Llama-3.1-8B has",
            ),
            parameters=8030,
        ),
    )
)  # fmt: skip
