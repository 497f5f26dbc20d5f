# SPDX-License-Identifier: MIT
"""Answers that the models of an array sample, and their rewards, for `losses.grpo` and `losses.reinforce`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..errors import InvalidArgument
from .collating import IGNORED, collate

Reward = Callable[[list[int], list[int]], float]


@torch.no_grad()
def sample(
    array: Any, prompts: Sequence[Sequence[Sequence[int]]], rewards: Reward | Sequence[Reward], group: int,
    *, end: int | Sequence[int] | None = None, **options: Any,
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:  # fmt: skip
    """Let each model answer its own prompts `group` times, all at once, with `array.generate`.

    Args:
        array: an array of adapters on a causal language model of transformers; each model draws from its own stream.
        prompts: one list per model, with the tokens of P prompts.
        rewards: (prompt, answer), both as tokens, → a number; or one such function per model.
        end: token, or tokens, that end an answer; by default the one of the base.
        options: arguments of `generate`, for example `max_new_tokens`.

    Returns:
        (a batch of P * group sequences per model, with the answers as targets; rewards `[B, P * group]`).

    Raises:
        InvalidArgument: models have different numbers of prompts, or rewards are not one function or one per model.
    """
    counts = {len(own) for own in prompts}
    each = [rewards] * array.B if callable(rewards) else list(rewards)
    if len(prompts) != array.B or len(each) != array.B or len(counts) != 1 or 0 in counts:
        raise InvalidArgument(
            f"sample takes as many prompts for each of {array.B} models, and one reward or one per model; got "
            f"{[len(own) for own in prompts]} prompts and {len(each)} rewards"
        )
    asked = [[list(prompt) for prompt in own for _ in range(group)] for own in prompts]
    device = next(array.parameters()).device
    each_prompt = [torch.tensor(prompt, device=device) for own in asked for prompt in own]
    ids, mask = (
        torch.nn.utils.rnn.pad_sequence(part, batch_first=True, padding_side="left").unflatten(0, (array.B, -1))
        for part in (each_prompt, [torch.ones_like(prompt) for prompt in each_prompt])
    )
    end = array.config.eos_token_id if end is None else end
    ends = {end} if isinstance(end, int) else set(end or ())
    training = array.training
    try:
        given = {"do_sample": True, "pad_token_id": 0, "eos_token_id": sorted(ends) or None, **options}
        tokens = array.eval().generate(input_ids=ids, attention_mask=mask, **given)
    finally:
        array.train(training)
    answers = [[_until(row[ids.shape[-1] :].tolist(), ends) for row in own] for own in tokens]
    rows = [
        [{"input_ids": p + a, "labels": [IGNORED] * len(p) + a} for p, a in zip(*both, strict=True)]
        for both in zip(asked, answers, strict=True)
    ]
    found = [
        [float(rate(p, a)) for p, a in zip(*both, strict=True)]
        for rate, *both in zip(each, asked, answers, strict=True)
    ]
    return {name: value.to(device) for name, value in collate(rows).items()}, torch.tensor(found, device=device)


def _until(tokens: list[int], ends: set[int]) -> list[int]:
    """Tokens up to the first that ends an answer, with it."""
    return tokens[: next((n for n, token in enumerate(tokens, 1) if token in ends), len(tokens))]
