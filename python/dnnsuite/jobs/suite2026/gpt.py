# SPDX-License-Identifier: MIT
"""Pretraining of a language model, the form of modded-nanogpt's and nanochat's."""

from __future__ import annotations

from ..declared_job import declare
from ..workload import Card, Group, Made, Metric, Rate, Workload, models, sizes
from .decoder import OF_TEXT, PAGES, SIZES, bits, flops_per_token, loss

_ADAMW = {"lr": "lr", "betas": (0.9, 0.95)}

declare(
    Workload(
        name="gpt",
        description="pretraining of language models",
        **OF_TEXT,
        options={**SIZES, "layers": 3},
        model=lambda options, hyper: models.Decoder(options),
        loss=loss,
        metric=Metric("bits per token", bits, "less", {"quick": 3.6, "default": 3.0}, batches=1),
        optimizer=[
            Group(lambda name, parameter: parameter.dim() > 1, Made("AdamW", {**_ADAMW, "weight_decay": 0.05})),
            Group(lambda name, parameter: True, Made("AdamW", {**_ADAMW, "weight_decay": 0.0})),
        ],
        hyper={"lr": 4e-3},
        rate=Rate(warmup=0.1, constant=0.3),
        flops_per_item=flops_per_token,
        presets=sizes(
            (40, 8), (200, 32), (1500, 32), num_Bs=4,
            layers=12, width=768, heads=6, kv_heads=6, ff=2048, vocab=50_304, length=1024,
        ),
        card=Card(
            "language modelling",
            "decoder 12 x 768, 6 heads, rotary positions, RMS norms, gated feed-forward of 2048; head tied",
            source=("jordan2024", "kaplan2020"),
            about=(
                "AdamW in place of Muon and AdamW, whose products in bfloat16 a CPU computes slowly",
                PAGES,
            ),
            parameters=124,
        ),
    )
)  # fmt: skip
