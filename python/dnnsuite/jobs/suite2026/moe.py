# SPDX-License-Identifier: MIT
"""A sparse mixture of experts (Switch, GShard): each token goes to the best two of eight, each expert has a capacity.

With a capacity the shapes do not depend on the data. The experts are no good if all tokens go to a few of them, so that
the measure of quality is infinite where one has more than three times its share.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ..declared_job import declare, widened
from ..workload import Made, Metric, Preset, Rate, Values, Workload
from .decoder import OF_TEXT, SIZES, Attention, Block, Decoder, flops_per_token

_CHOSEN, _CAPACITY = 2, 1.5
_BALANCE = 0.01  # weight of the loss that spreads the tokens
_MOST = 3.0  # times its share that an expert may have


class Experts(nn.Module):
    """Gated feed-forwards of which each token takes two; returns them, the balance loss and the greatest share."""

    def __init__(self, width: int, ff: int, experts: int) -> None:
        super().__init__()
        self.experts = experts
        self.router = nn.Linear(width, experts, bias=False)
        self.gate, self.up, self.down = (
            nn.Parameter(torch.randn(experts, i, o) * i**-0.5) for i, o in ((width, ff), (width, ff), (ff, width))
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        rows = x.flatten(0, 1)
        tokens, experts = len(rows), self.experts
        room = int(_CAPACITY * _CHOSEN * tokens / experts)
        chance = widened(self.router(rows)).softmax(-1)
        weight, expert = chance.topk(_CHOSEN, -1)
        weight = (weight / weight.sum(-1, keepdim=True)).to(rows.dtype)
        expert = expert.t().flatten()  # all first choices before the second ones
        taken = F.one_hot(expert, experts)
        place = (taken.cumsum(0) - 1).gather(1, expert[:, None]).squeeze(1)
        fits = place < room
        slot = torch.where(fits, expert * room + place, experts * room)  # the last slot is for what does not fit
        seats = rows.new_zeros(experts * room + 1, rows.shape[-1]).index_add(0, slot, rows.repeat(_CHOSEN, 1))
        seated = seats[:-1].view(experts, room, -1)
        made = (F.silu(seated @ self.gate) * (seated @ self.up)) @ self.down
        made = F.pad(made.flatten(0, 1), (0, 0, 0, 1))[slot]
        mixed = (made * (weight.t().flatten() * fits)[:, None]).view(_CHOSEN, tokens, -1).sum(0)
        share = taken.to(chance.dtype).mean(0)
        return mixed.view_as(x), experts * (share * chance.mean(0)).sum(), share.max() * experts


class MixtureBlock(Block):
    """Attention, then experts; what they say of the balance is handed on."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # type: ignore[override]
        x = x + self.mixer(self.norms[0](x))
        mixed, balance, greatest = self.ff(self.norms[1](x))
        return x + mixed, balance, greatest


class Mixture(Decoder):
    """Tokens `[N, L]` → (logits, balance loss `[]`, greatest share of an expert `[]`)."""

    def __init__(self, options: Values) -> None:
        width, heads = options["width"], (options["heads"], options["kv_heads"])
        experts = (options["ff"], options["experts"])
        super().__init__(options, lambda: MixtureBlock(width, Attention(width, *heads), Experts(width, *experts)))

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # type: ignore[override]
        x, balances, shares = self.embedding(tokens), [], []
        for block in self.blocks:
            x, balance, greatest = block(x)
            balances.append(balance)
            shares.append(greatest)
        logits = F.linear(self.norm(x), self.embedding.weight)
        return logits, torch.stack(balances).sum(), torch.stack(shares).max()


def loss(model: Any, tokens: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    logits, balance, _ = model(tokens)
    return F.cross_entropy(widened(logits).flatten(0, 1), following.flatten()) + _BALANCE * balance


def balanced_bits(model: Any, tokens: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    """Bits per token; infinite where an expert has more than three times its share."""
    logits, _, greatest = model(tokens)
    found = F.cross_entropy(widened(logits).flatten(0, 1), following.flatten()) / math.log(2)
    return torch.where(greatest <= _MOST, found, torch.full_like(found, math.inf))


_PAPER = {
    "layers": 12, "width": 768, "heads": 6, "kv_heads": 6, "ff": 1536, "vocab": 50_304, "length": 1024,
}  # fmt: skip
declare(
    Workload(
        name="moe",
        description="a decoder with eight experts, two for each token, learns text",
        **OF_TEXT,
        options={**SIZES, "ff": 96, "experts": 8},
        model=lambda options, hyper: Mixture(options),
        loss=loss,
        metric=Metric("balanced bits per token", balanced_bits, "less", {"quick": 3.6, "default": 3.0}, batches=1),
        optimizer=Made("AdamW", {"lr": "lr", "betas": (0.9, 0.95), "weight_decay": 0.1}),
        hyper={"lr": 3e-3},
        rate=Rate(warmup=0.1, constant=0.1, shape="cosine"),
        flops_per_item=lambda options: flops_per_token({**options, "ff": _CAPACITY * _CHOSEN * options["ff"]}),
        presets={
            "quick": Preset(3, 50, batch_size=8, plan=(1, 4), budget_s=40.0),
            "default": Preset(3, 200, batch_size=32, plan=(1, 2, 4), budget_s=95.0),
            "paper": Preset(3, 1500, batch_size=32, repeats=3, max_num_Bs=4, options=_PAPER),
        },
    )
)
