# SPDX-License-Identifier: MIT
"""Jobs that teach a language model which answers are better, by letters to bring in order.

`dpo` is direct preference optimisation: of two answers to a prompt, the model learns to prefer the one whose letters
ascend. A frozen copy is the reference. Prompts that begin with one of the last letters are held out.

`grpo` is reinforcement learning by groups of answers (Shao et al., 2024), in the form of MLPerf 6.1. Each prompt of
five letters has eight sampled answers; one that is the letters in order is rewarded. The baseline of an answer is the
mean reward of the others of its group, the clipping is .2 down and .28 up, and there is no term for the distance from a
reference. A model of random weights is never rewarded, so that it learns from examples first, while it is made. Prompts
that begin with the last letter are held out.
"""

from __future__ import annotations

import copy
from typing import Any

from ..._lazy import functional as F
from ..._lazy import torch
from ...data.batches import BatchesInTurn, Rollouts, shuffled
from .._job import JobConfig
from ..declared_job import declare
from ..workload import Card, Made, Metric, Preset, Rate, Values, Workload, models, sizes
from .language import BILLION, SIZES, answered, flops_per_token, likelihoods, taught

_LETTERS = 26
_TRAINED = 10 / 13  # of them, first letters of prompts that are not held out
_BETA = 0.1


def with_reference(options: Values, hyper: Values) -> torch.nn.Module:
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
        model=with_reference,
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


_FEW_LETTERS, _GROUP, _PARTS = 10, 8, 2
_LOW, _HIGH = 0.8, 1.28
_EXAMPLES_SEED = 2


def prompts(count: int, length: int, generator: torch.Generator, held_out: bool = False) -> torch.Tensor:
    """Letters and a separator `[count, length + 1]`."""
    found = torch.randint(_FEW_LETTERS, (count, length), generator=generator)
    found[:, 0] = _FEW_LETTERS - 1 if held_out else found[:, 0] % (_FEW_LETTERS - 1)
    return F.pad(found, (0, 1), value=_FEW_LETTERS)


def right(tokens: torch.Tensor) -> torch.Tensor:
    """1 for an answer that is the prompt's letters in order, else 0, `[N]`."""
    half = tokens.shape[1] // 2
    return (tokens[:, half + 1 :] == tokens[:, :half].sort(1).values).all(1).float()


def of_answers(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    return likelihoods(model, tokens, tokens.shape[1] // 2 + 1)


def rollouts(config: JobConfig, options: Values) -> Rollouts:
    """Answers of the model, each learned from once: tokens `[N * 8 / 2, 2 * length + 1]`, their likelihoods when they
    were sampled, and an advantage of each answer."""

    def play(model: Any, generator: torch.Generator) -> list[tuple[torch.Tensor, ...]]:
        asked = prompts(config.batch_size, options["prompt"], generator).repeat_interleave(_GROUP, 0)
        tokens = answered(model, asked.to(config.device), generator)
        reward = right(tokens).view(-1, _GROUP)
        others = (reward.sum(1, keepdim=True) - reward) / (_GROUP - 1)
        return shuffled((tokens, of_answers(model, tokens), (reward - others).flatten()), _PARTS, generator)

    return Rollouts(play, config.data_seed, {"source": "drawn: letters to bring in order", "licence": "none needed"})


def grpo_loss(model: Any, tokens: torch.Tensor, old: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
    ratio, gain = (of_answers(model, tokens) - old).exp(), advantage[:, None]
    return -torch.minimum(ratio * gain, ratio.clamp(_LOW, _HIGH) * gain).mean()


def _examples(options: Values) -> Any:
    """Batches of 64 prompts with their answers."""
    generator = torch.Generator().manual_seed(_EXAMPLES_SEED)

    def shown(i: int) -> tuple[torch.Tensor, ...]:
        asked = prompts(64, options["prompt"], generator)
        return (torch.cat([asked, asked[:, :-1].sort(1).values], 1),)

    return shown, lambda model, tokens: -of_answers(model, tokens).mean()


def unseen(config: JobConfig, options: Values) -> BatchesInTurn:
    """Prompts that are not trained on, 256 in a batch."""
    draw = lambda generator: (prompts(256, options["prompt"], generator, held_out=True),)  # noqa: E731
    return BatchesInTurn.drawn(draw, 9, "letters to bring in order")


declare(
    Workload(
        name="grpo",
        description="learning from rewards: generation, then small updates",
        unit="answers",
        options={**SIZES, "width": 64, "ff": 192, "vocab": _FEW_LETTERS + 2, "prompt": 5, "examples": 60},
        model=lambda options, hyper: taught(options, _examples, options["examples"], _EXAMPLES_SEED, 2e-3),
        rollouts=rollouts,
        loss=grpo_loss,
        held_out=unseen,
        metric=Metric(
            "exact answers", lambda model, tokens: right(answered(model, tokens)).mean(), "more",
            {"quick": 0.8, "default": 0.85}, batches=1,
        ),
        optimizer=Made("AdamW", {"lr": "lr", "weight_decay": 0.0}),
        hyper={"lr": 4e-4},
        rate=Rate(warmup=0.0, constant=0.5),
        clip_norm=1.0,
        items_per_sample=_GROUP // _PARTS,
        flops_per_item=lambda options: (
            2 * options["prompt"] * flops_per_token({**options, "length": 2 * options["prompt"]})
        ),
        presets={
            "quick": Preset(3, 80, batch_size=16),
            "default": Preset(3, 200, batch_size=64),
            "paper": Preset(3, 20, batch_size=16, options={**BILLION, "prompt": 127, "examples": 0}),
        },
        card=Card(
            "reinforcement learning",
            "decoder 16 x 2048, 16 heads, gated feed-forward of 5504",
            source=("shao2024",),
            about=(
                "letters to bring in order in place of R2E-Gym's tasks",
                "answers are sampled without a cache of keys and values; 16 prompts of 8 fill 80 GB in fp32",
                "a model of random weights is never rewarded: at quick size all seeds begin at one that has learned "
                "from 60 batches of examples, which answers 0.71 of the prompts",
            ),
        ),
    )
)  # fmt: skip
