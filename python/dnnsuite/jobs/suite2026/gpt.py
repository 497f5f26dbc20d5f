# SPDX-License-Identifier: MIT
"""Pretraining of a language model, the form of modded-nanogpt's and nanochat's: 124 M parameters at paper size."""

from __future__ import annotations

from ..declared_job import declare
from ..workload import Group, Made, Metric, Preset, Rate, Workload
from .decoder import OF_TEXT, SIZES, Decoder, bits, flops_per_token, loss

_PAPER = {"layers": 12, "width": 768, "heads": 6, "kv_heads": 6, "ff": 2048, "vocab": 50_304, "length": 1024}
_ADAMW = {"lr": "lr", "betas": (0.9, 0.95)}

declare(
    Workload(
        name="gpt",
        description="a decoder of rotary attention learns text, AdamW, constant rate and a long fall",
        **OF_TEXT,
        options={**SIZES, "layers": 3},
        model=lambda options, hyper: Decoder(options),
        loss=loss,
        metric=Metric("bits per token", bits, "less", {"quick": 3.6, "default": 3.0}, batches=1),
        optimizer=[
            Group(lambda name, parameter: parameter.dim() > 1, Made("AdamW", {**_ADAMW, "weight_decay": 0.05})),
            Group(lambda name, parameter: True, Made("AdamW", {**_ADAMW, "weight_decay": 0.0})),
        ],
        hyper={"lr": 4e-3},
        rate=Rate(warmup=0.1, constant=0.3),
        flops_per_item=flops_per_token,
        presets={
            "quick": Preset(3, 40, batch_size=8, plan=(1, 4), budget_s=40.0),
            "default": Preset(3, 200, batch_size=32, plan=(1, 2, 4), budget_s=95.0),
            "paper": Preset(3, 1500, batch_size=32, repeats=3, max_num_Bs=4, options=_PAPER),
        },
    )
)
