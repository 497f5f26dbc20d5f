# SPDX-License-Identifier: MIT
"""A sparse mixture of experts (Switch, GShard): each token goes to the best two, each expert has a capacity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .decoder import Added, Attention, Decoder
from .perceptrons import widened

CHOSEN, CAPACITY = 2, 1.5


class Experts(nn.Module):
    """Gated feed-forward experts, two for each token; returns their sum, the balance loss and the largest share."""

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
        room = int(CAPACITY * CHOSEN * tokens / experts)
        chance = widened(self.router(rows)).softmax(-1)
        weight, expert = chance.topk(CHOSEN, -1)
        weight = (weight / weight.sum(-1, keepdim=True)).to(rows.dtype)
        expert = expert.t().flatten()  # all first choices before the second ones
        taken = F.one_hot(expert, experts)
        place = (taken.cumsum(0) - 1).gather(1, expert[:, None]).squeeze(1)
        fits = place < room
        slot = torch.where(fits, expert * room + place, experts * room)  # the last slot is for what does not fit
        seats = rows.new_zeros(experts * room + 1, rows.shape[-1]).index_add(0, slot, rows.repeat(CHOSEN, 1))
        seated = seats[:-1].view(experts, room, -1)
        made = (F.silu(seated @ self.gate) * (seated @ self.up)) @ self.down
        made = F.pad(made.flatten(0, 1), (0, 0, 0, 1))[slot]
        mixed = (made * (weight.t().flatten() * fits)[:, None]).view(CHOSEN, tokens, -1).sum(0)
        share = taken.to(chance.dtype).mean(0)
        return mixed.view_as(x), experts * (share * chance.mean(0)).sum(), share.max() * experts


class MixtureBlock(nn.Module):
    """Attention, then experts; also returns their balance loss and the largest share."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__()
        width = options["width"]
        self.attention = Added(width, Attention(width, options["heads"], options["kv_heads"]))
        self.norm = nn.RMSNorm(width, eps=1e-6)
        self.experts = Experts(width, options["ff"], options["experts"])

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x = self.attention(x)
        mixed, balance, greatest = self.experts(self.norm(x))
        return x + mixed, balance, greatest


class Mixture(Decoder):
    """Map tokens `[N, L]` to (logits `[N, L, vocab]`, balance loss `[]`, largest share of an expert `[]`)."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options, lambda: MixtureBlock(options))

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # type: ignore[override]
        x, balances, shares = self.embedding(tokens), [], []
        for block in self.blocks:
            x, balance, greatest = block(x)
            balances.append(balance)
            shares.append(greatest)
        logits = F.linear(self.norm(x), self.embedding.weight)
        return logits, torch.stack(balances).sum(), torch.stack(shares).max()
