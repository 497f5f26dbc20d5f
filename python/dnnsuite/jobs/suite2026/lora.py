# SPDX-License-Identifier: MIT
"""Low-rank adapters on a frozen decoder, the form of MLPerf's fine-tuning: they learn source code.

On a base of random weights adapters learn nothing, so that the base learns the pages on the language first, while the
model is made. All models of an array have adapters of their own on equal bases.
"""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ...data.batches import ArrayBatches, WholeBatch
from ...errors import InvalidArgument
from .._job import JobConfig
from ..declared_job import declare
from ..workload import Made, Metric, Preset, Rate, Values, Workload
from .decoder import SIZES, Decoder, attention_flops, flops_per_token, held_out_windows, loss, taught, text, windows

_MODULES = 40  # files of source code


class Adapted(nn.Module):
    """A frozen linear layer, and a product of rank `rank` beside it that begins at zero."""

    def __init__(self, base: nn.Linear, rank: int, scale: float) -> None:
        super().__init__()
        self.base, self.scale = base.requires_grad_(False), scale
        self.down = nn.Parameter(torch.randn(rank, base.in_features) * base.in_features**-0.5)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + F.linear(F.linear(x, self.down), self.up) * self.scale


def model(options: Values, hyper: Values) -> nn.Module:
    """The frozen decoder with adapters on queries, values, outputs and feed-forwards."""
    decoder = Decoder(options)
    decoder.load_state_dict(_base(tuple(sorted(options.items()))))
    decoder.requires_grad_(False)
    scale = 2.0  # alpha = 2 r, as in MLPerf
    for block in decoder.blocks:
        for holder, name in (
            (block.mixer, "query"), (block.mixer, "value"), (block.mixer, "out"),
            (block.ff, "gate"), (block.ff, "up"), (block.ff, "down"),
        ):  # fmt: skip
            setattr(holder, name, Adapted(getattr(holder, name), options["rank"], scale))
    return decoder


@lru_cache(maxsize=2)
def _base(items: tuple[tuple[str, Any], ...]) -> dict[str, torch.Tensor]:
    """Weights of a decoder that has learned the pages on the language."""
    options = dict(items)
    batches = text(JobConfig(batch_size=8, data_seed=1), options)
    return taught(options, batches.batch, loss, options["base_steps"], 1, 4e-3, Rate(warmup=0.1, constant=0.5))


def source_code(config: JobConfig, options: Values) -> ArrayBatches:
    tokens, record = _source()
    return windows(tokens[: len(tokens) * 9 // 10], record, config, options["length"])


def held_out_code(config: JobConfig, options: Values) -> WholeBatch:
    tokens, record = _source()
    return held_out_windows(tokens[len(tokens) * 9 // 10 :], record, options["length"])


@lru_cache(maxsize=1)
def _source() -> tuple[torch.Tensor, dict[str, Any]]:
    """Bytes of modules of the standard library."""
    import dataclasses

    folder = Path(dataclasses.__file__).parent
    files = sorted(folder.glob("[a-l]*.py"))[:_MODULES]
    if not files:
        raise InvalidArgument(f"{folder} has no source code to learn: this interpreter comes without it")
    whole = b"\n".join(path.read_bytes() for path in files)
    record = {"source": f"{len(files)} modules of CPython's library, as bytes", "licence": "PSF-2.0"}
    return torch.frombuffer(bytearray(whole), dtype=torch.uint8), record


def gain(model: Any, tokens: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    """Bits per byte that the adapters are better than the frozen base."""
    adapters = [part for part in model.modules() if isinstance(part, Adapted)]
    own = loss(model, tokens, following)
    scales = [part.scale for part in adapters]
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


_PAPER = {
    "layers": 32, "width": 4096, "heads": 32, "kv_heads": 8, "ff": 14_336, "vocab": 128_256, "length": 8192,
    "rank": 16, "base_steps": 0, "again": 1,
}  # fmt: skip
declare(
    Workload(
        name="lora",
        description="adapters of rank 8 on a frozen decoder learn source code",
        unit="tokens",
        options={**SIZES, "layers": 3, "rank": 8, "base_steps": 90, "again": 0},
        model=model,
        data=source_code,
        loss=loss,
        held_out=held_out_code,
        metric=Metric("bits better than the base", gain, "more", {"quick": 0.15, "default": 0.15}, batches=1),
        optimizer=Made("AdamW", {"lr": "lr", "weight_decay": 0.0}),
        hyper={"lr": 1e-2},
        rate=Rate(warmup=0.1, constant=0.1, shape="cosine"),
        clip_norm=1.0,
        items_per_sample=lambda options: options["length"],
        flops_per_item=flops,
        presets={
            "quick": Preset(3, 25, batch_size=8, plan=(1, 4), budget_s=40.0),
            "default": Preset(3, 200, batch_size=8, plan=(1, 2, 4), budget_s=95.0),
            "paper": Preset(3, 100, batch_size=1, repeats=3, max_num_Bs=2, options=_PAPER),
        },
    )
)
