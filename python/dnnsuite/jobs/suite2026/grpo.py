# SPDX-License-Identifier: MIT
"""Reinforcement learning of a language model by groups of answers (GRPO; Shao et al., 2024), in the form of MLPerf 6.1.

Each prompt of five letters has eight sampled answers; one that is the letters in order is rewarded. The baseline of an
answer is the mean reward of the others of its group, the clipping is .2 down and .28 up, and there is no term for the
distance from a reference. A model of random weights is never rewarded, so that it learns from examples first, while it
is made. Prompts that begin with the last letter are held out.
"""

from __future__ import annotations

from typing import Any

from ..._lazy import functional as F
from ..._lazy import torch
from ...data.batches import BatchesInTurn, Rollouts, shuffled
from .._job import JobConfig
from ..declared_job import declare
from ..workload import Card, Made, Metric, Preset, Rate, Values, Workload
from .language import BILLION, SIZES, answered, flops_per_token, likelihoods, taught

_LETTERS, _GROUP, _PARTS = 10, 8, 2
_LOW, _HIGH = 0.8, 1.28
_EXAMPLES_SEED = 2


def prompts(count: int, length: int, generator: torch.Generator, held_out: bool = False) -> torch.Tensor:
    """Letters and a separator `[count, length + 1]`."""
    found = torch.randint(_LETTERS, (count, length), generator=generator)
    found[:, 0] = _LETTERS - 1 if held_out else found[:, 0] % (_LETTERS - 1)
    return F.pad(found, (0, 1), value=_LETTERS)


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


def loss(model: Any, tokens: torch.Tensor, old: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
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
        options={**SIZES, "width": 64, "ff": 192, "vocab": _LETTERS + 2, "prompt": 5, "examples": 60},
        model=lambda options, hyper: taught(options, _examples, options["examples"], _EXAMPLES_SEED, 2e-3),
        rollouts=rollouts,
        loss=loss,
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
