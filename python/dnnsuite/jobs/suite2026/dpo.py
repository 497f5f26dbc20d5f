# SPDX-License-Identifier: MIT
"""Direct preference optimisation: of two answers to a prompt, the model learns to prefer the one whose letters ascend.

A frozen copy is the reference. Prompts that begin with one of the last letters are held out.
"""

from __future__ import annotations

import copy
from typing import Any

from ..._lazy import functional as F
from ..._lazy import torch
from ...data.batches import BatchesInTurn
from .._job import JobConfig
from ..declared_job import declare
from ..workload import Card, Made, Metric, Rate, Values, Workload, models, sizes
from .language import BILLION, SIZES, flops_per_token, likelihoods

_LETTERS = 26
_TRAINED = 10 / 13  # of them, first letters of prompts that are not held out
_BETA = 0.1


def model(options: Values, hyper: Values) -> torch.nn.Module:
    policy = models.Decoder(options)
    policy.reference = copy.deepcopy(policy).requires_grad_(False)
    return policy


def margin(model: Any, good: torch.Tensor, bad: torch.Tensor) -> torch.Tensor:
    """Margin `[N]` by which the policy prefers the first of two answers more than the reference does."""

    def ratio(tokens: torch.Tensor) -> torch.Tensor:
        policy, reference = (likelihoods(x, tokens, tokens.shape[1] // 2) for x in (model, model.reference))
        return (policy - reference).sum(-1)

    return ratio(good) - ratio(bad)


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


declare(
    Workload(
        name="dpo",
        description="learning from preferences: two forwards, one frozen",
        unit="pairs",
        options={**SIZES, "width": 64, "ff": 128, "vocab": _LETTERS, "length": 16},
        model=model,
        data=pairs,
        loss=lambda model, good, bad: -F.logsigmoid(_BETA * margin(model, good, bad)).mean(),
        held_out=lambda config, options: pairs(config, options, held_out=True),
        metric=Metric(
            "pairs preferred", lambda model, good, bad: (margin(model, good, bad) > 0).float().mean(), "more",
            {"quick": 0.9, "default": 0.95},
        ),
        optimizer=Made("AdamW", {"lr": "lr", "weight_decay": 0.0}),
        hyper={"lr": 1e-3},
        rate=Rate(warmup=0.1, constant=0.5),
        clip_norm=1.0,
        # Two answers, each through the policy, and through the reference without a backward.
        flops_per_item=lambda options: 2 * options["length"] * 4 / 3 * flops_per_token(options),
        presets=sizes((50, 32), (200, 64), (100, 8), **BILLION, length=1024),
        card=Card(
            "language modelling",
            "policy and frozen reference 16 x 2048, 16 heads, gated feed-forward of 5504",
            source=("rafailov2023",),
            about=("drawn letters in place of texts, so that the better answer is known",),
        ),
    )
)  # fmt: skip
