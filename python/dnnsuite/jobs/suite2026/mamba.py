# SPDX-License-Identifier: MIT
"""A selective state space model learns text: Mamba-2 in matrix form."""

from __future__ import annotations

from ..declared_job import declare
from ..workload import Card, Made, Metric, Rate, Values, Workload, models, sizes
from .decoder import OF_TEXT, PAGES, SIZES, bits, loss


def model(options: Values, hyper: Values) -> models.Decoder:
    width, each = options["width"], (options["head"], options["state"], options["chunk"])
    return models.Decoder(options, lambda: models.Added(width, models.StateSpace(width, *each)))


def flops(options: Values) -> float:
    width, state, chunk = options["width"], options["state"], options["chunk"]
    inner = 2 * width
    projections = width * (3 * inner + 2 * state + inner // options["head"])
    scan = chunk * (state + inner) + 2 * state * inner + 4 * (inner + 2 * state)
    return 6.0 * (options["layers"] * (projections + scan) + options["vocab"] * width)


declare(
    Workload(
        name="mamba",
        description="state-space models: a scan in matrix form",
        **OF_TEXT,
        options={**SIZES, "width": 64, "head": 32, "state": 16, "chunk": 32},
        model=model,
        loss=loss,
        metric=Metric("bits per token", bits, "less", {"quick": 3.6, "default": 3.0}, batches=1),
        optimizer=Made("AdamW", {"lr": "lr", "betas": (0.9, 0.95), "weight_decay": 0.01}),
        hyper={"lr": 4e-3},
        rate=Rate(warmup=0.1, constant=0.5),
        flops_per_item=flops,
        presets=sizes(
            (50, 8), (200, 32), (1000, 4), num_Bs=4,
            layers=24, width=768, head=64, state=128, chunk=256, vocab=50_288, length=2048,
        ),
        card=Card(
            "language modelling",
            "Mamba-2 in matrix form: 24 x 768, state 128, heads of 64, chunks of 256",
            source=("dao2024",),
            about=("text in place of selective copying: nothing of that size learns to copy in 20 s", PAGES),
            parameters=129,
        ),
    )
)  # fmt: skip
