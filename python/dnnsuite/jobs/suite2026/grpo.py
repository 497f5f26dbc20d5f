# SPDX-License-Identifier: MIT
"""Reinforcement learning of a language model by groups of answers (GRPO; Shao et al., 2024), in the form of MLPerf 6.1.

Each prompt of five letters has eight sampled answers; one that is the letters in order is rewarded. The baseline of an
answer is the mean reward of the others of its group, the clipping is .2 down and .28 up, and there is no term for the
distance from a reference. A model of random weights is never rewarded, so that it learns from examples first, while it
is made. All seeds begin at these weights, as fine-tuning does in practice, and differ in their answers. Prompts that
begin with the last letter are held out.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ...data.batches import BatchesInTurn, Rollouts, shuffled
from .._job import JobConfig
from ..declared_job import declare, widened
from ..workload import Made, Metric, Preset, Rate, Values, Workload
from .decoder import SIZES, Decoder, flops_per_token, taught

_LETTERS, _GROUP, _PARTS = 10, 8, 2
_LOW, _HIGH = 0.8, 1.28
_EXAMPLES_SEED = 2


def prompts(count: int, length: int, generator: torch.Generator, held_out: bool = False) -> torch.Tensor:
    """Letters and a separator `[count, length + 1]`."""
    found = torch.randint(_LETTERS, (count, length), generator=generator)
    found[:, 0] = _LETTERS - 1 if held_out else found[:, 0] % (_LETTERS - 1)
    return F.pad(found, (0, 1), value=_LETTERS)


def likelihoods(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    """Logarithms of the chances of the answer's letters `[N, length]`."""
    chances = widened(model(tokens[:, :-1])).log_softmax(-1)
    return chances.gather(-1, tokens[:, 1:, None]).squeeze(-1)[:, tokens.shape[1] // 2 :]


def answered(model: Any, tokens: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
    """Prompts with answers, sampled or (without a generator) the likeliest letters."""
    for _ in range(tokens.shape[1] - 1):
        chances = widened(model(tokens)[:, -1]).softmax(-1)
        after = (
            chances.argmax(-1, keepdim=True)
            if generator is None
            else torch.multinomial(chances.cpu(), 1, generator=generator).to(tokens.device)
        )
        tokens = torch.cat([tokens, after], 1)
    return tokens


def right(tokens: torch.Tensor) -> torch.Tensor:
    """1 for an answer that is the prompt's letters in order, else 0, `[N]`."""
    half = tokens.shape[1] // 2
    return (tokens[:, half + 1 :] == tokens[:, :half].sort(1).values).all(1).float()


def rollouts(config: JobConfig, options: Values) -> Rollouts:
    """Answers of the model, each learned from once: tokens `[N * 8 / 2, 2 * length + 1]`, their likelihoods when they
    were sampled, and an advantage of each answer."""

    def play(model: Any, generator: torch.Generator) -> list[tuple[torch.Tensor, ...]]:
        asked = prompts(config.batch_size, options["prompt"], generator).repeat_interleave(_GROUP, 0)
        tokens = answered(model, asked.to(config.device), generator)
        reward = right(tokens).view(-1, _GROUP)
        others = (reward.sum(1, keepdim=True) - reward) / (_GROUP - 1)
        return shuffled((tokens, likelihoods(model, tokens), (reward - others).flatten()), _PARTS, generator)

    return Rollouts(play, config.data_seed, {"source": "drawn: letters to bring in order", "licence": "none needed"})


def loss(model: Any, tokens: torch.Tensor, old: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
    ratio, gain = (likelihoods(model, tokens) - old).exp(), advantage[:, None]
    return -torch.minimum(ratio * gain, ratio.clamp(_LOW, _HIGH) * gain).mean()


def model(options: Values, hyper: Values) -> nn.Module:
    """A decoder that has seen some answers."""
    decoder = Decoder(options)
    if options["examples"]:
        decoder.load_state_dict(_taught(tuple(sorted(options.items()))))
    return decoder


@lru_cache(maxsize=2)
def _taught(items: tuple[tuple[str, Any], ...]) -> dict[str, torch.Tensor]:
    """Weights of a decoder that was shown `examples` batches of 64 prompts with their answers."""
    options, generator = dict(items), torch.Generator().manual_seed(_EXAMPLES_SEED)

    def shown(i: int) -> tuple[torch.Tensor, ...]:
        asked = prompts(64, options["prompt"], generator)
        return (torch.cat([asked, asked[:, :-1].sort(1).values], 1),)

    def unlikely(model: Any, tokens: torch.Tensor) -> torch.Tensor:
        return -likelihoods(model, tokens).mean()

    return taught(options, shown, unlikely, options["examples"], _EXAMPLES_SEED, 2e-3)


def unseen(config: JobConfig, options: Values) -> BatchesInTurn:
    """Prompts that are not trained on, 256 in a batch."""

    draw = lambda generator: (prompts(256, options["prompt"], generator, held_out=True),)  # noqa: E731
    return BatchesInTurn.drawn(draw, 9, "letters to bring in order")


def exact(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    """Share of right answers."""
    return right(answered(model, tokens)).mean()


_PAPER = {
    "layers": 16, "width": 2048, "heads": 16, "kv_heads": 16, "ff": 5504, "vocab": 32_000, "prompt": 127, "examples": 0,
}  # fmt: skip
declare(
    Workload(
        name="grpo",
        description="a decoder learns from rewards of its own answers, in groups without a critic",
        unit="answers",
        options={**SIZES, "width": 64, "ff": 192, "vocab": _LETTERS + 2, "prompt": 5, "examples": 60},
        model=model,
        data=rollouts,
        loss=loss,
        held_out=unseen,
        metric=Metric("exact answers", exact, "more", {"quick": 0.8, "default": 0.85}, batches=1),
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
            "paper": Preset(3, 20, batch_size=16, options=_PAPER),
        },
    )
)
