# SPDX-License-Identifier: MIT
"""Direct preference optimisation: of two answers to a prompt, the model learns to prefer the one whose letters ascend.

A frozen copy is the reference. Prompts that begin with one of the last letters are held out.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ...data.batches import BatchesInTurn
from .._job import JobConfig
from ..declared_job import declare, widened
from ..workload import Made, Metric, Preset, Rate, Values, Workload
from .decoder import SIZES, Decoder, flops_per_token

_LETTERS = 26
_TRAINED = 10 / 13  # of them, first letters of prompts that are not held out
_BETA = 0.1


class Preference(nn.Module):
    """Two answers `[N, L]` each → how much more than the reference the policy prefers the first, `[N]`."""

    def __init__(self, options: Values) -> None:
        super().__init__()
        self.prompt = options["length"] // 2
        self.policy = Decoder(options)
        self.reference = copy.deepcopy(self.policy).requires_grad_(False)

    def forward(self, good: torch.Tensor, bad: torch.Tensor) -> torch.Tensor:
        return self._ratio(good) - self._ratio(bad)

    def _ratio(self, tokens: torch.Tensor) -> torch.Tensor:
        return self._likelihood(self.policy, tokens) - self._likelihood(self.reference, tokens)

    def _likelihood(self, decoder: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
        """Logarithm of the answer's probability after its prompt, `[N]`."""
        chances = widened(decoder(tokens[:, :-1])).log_softmax(-1)
        return chances.gather(-1, tokens[:, 1:, None]).squeeze(-1)[:, self.prompt - 1 :].sum(-1)


def pairs(config: JobConfig, options: Values, held_out: bool = False) -> BatchesInTurn:
    """Prompts with an ascending answer `[N, L]`, and the same prompts with the letters in another order."""
    half, count, letters = options["length"] // 2, config.batch_size, options["vocab"]
    split = int(letters * _TRAINED)

    def draw(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        prompt = torch.randint(letters, (count, half), generator=generator)
        low, high = (split, letters) if held_out else (0, split)
        prompt[:, 0] = torch.randint(low, high, (count,), generator=generator)
        bad = torch.rand(count, letters, generator=generator).argsort(1)[:, :half]
        good = bad.sort(1).values
        return torch.cat([prompt, good], 1), torch.cat([prompt, bad], 1)

    return BatchesInTurn.drawn(draw, config.data_seed, "prompts with ascending letters preferred")


def loss(model: Any, good: torch.Tensor, bad: torch.Tensor) -> torch.Tensor:
    return -F.logsigmoid(_BETA * model(good, bad)).mean()


def preferred(model: Any, good: torch.Tensor, bad: torch.Tensor) -> torch.Tensor:
    """Share of pairs whose better answer gained more than the other."""
    return (model(good, bad) > 0).float().mean()


_PAPER = {"layers": 16, "width": 2048, "heads": 16, "kv_heads": 16, "ff": 5504, "vocab": 32_000, "length": 1024}
declare(
    Workload(
        name="dpo",
        description="a decoder learns preferences against a frozen copy of itself",
        unit="pairs",
        options={**SIZES, "width": 64, "ff": 128, "vocab": _LETTERS, "length": 16},
        model=lambda options, hyper: Preference(options),
        data=pairs,
        loss=loss,
        held_out=lambda config, options: pairs(config, options, held_out=True),
        metric=Metric("pairs preferred", preferred, "more", {"quick": 0.9, "default": 0.95}),
        optimizer=Made("AdamW", {"lr": "lr", "weight_decay": 0.0}),
        hyper={"lr": 1e-3},
        rate=Rate(warmup=0.1, constant=0.5),
        clip_norm=1.0,
        # Two answers, each through the policy, and through the reference without a backward.
        flops_per_item=lambda options: 2 * options["length"] * 4 / 3 * flops_per_token(options),
        presets={
            "quick": Preset(3, 50, batch_size=32, plan=(1, 4), budget_s=40.0),
            "default": Preset(3, 200, batch_size=64, plan=(1, 2, 4), budget_s=95.0),
            "paper": Preset(3, 100, batch_size=8, repeats=3, max_num_Bs=2, options=_PAPER),
        },
    )
)
