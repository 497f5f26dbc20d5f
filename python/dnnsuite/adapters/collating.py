# SPDX-License-Identifier: MIT
"""Batches for models whose numbers and lengths of sequences differ, and answers that the models sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from ..errors import InvalidArgument

IGNORED = -100
_PADS = {"labels": IGNORED}

Reward = Callable[[list[int], list[int]], float]


def collate(batches: Sequence[Sequence[Mapping[str, Any]]], pad: int = 0) -> dict[str, torch.Tensor]:
    """Join one batch per model into one, padded to the largest number of sequences and the longest sequence.

    Args:
        batches: one per model: a sequence of mappings with `input_ids` `[T]` (a tensor or a list) and perhaps others of
            the same length, for example `labels`, in which -100 is not a target. A batch may be empty.
        pad: value of `input_ids` for padding.

    Returns:
        Tensors `[B, N, T]` by name, with `attention_mask`, 1 for tokens, and `labels`, by default the tokens
        themselves.

    Raises:
        InvalidArgument: a sequence is empty, its parts differ in length, or sequences differ in their names.

    >>> from dnnsuite import adapters
    >>> batch = adapters.collate([[{"input_ids": [5, 6, 7]}], [{"input_ids": [8]}, {"input_ids": [9, 4]}]])
    >>> batch["labels"].tolist()
    [[[5, 6, 7], [-100, -100, -100]], [[8, -100, -100], [9, 4, -100]]]
    """
    rows = [
        (model, place, _checked(s, model, place)) for model, own in enumerate(batches) for place, s in enumerate(own)
    ]
    if not rows:
        raise InvalidArgument("collate got no sequence for any model")
    names = set(rows[0][2])
    shape = len(batches), max(map(len, batches)), max(len(own["input_ids"]) for _, _, own in rows)
    made = {name: torch.full(shape, _PADS.get(name, pad if name == "input_ids" else 0)) for name in names}
    for model, place, own in rows:
        if set(own) != names:
            raise InvalidArgument(
                f"collate: sequence {place} of model {model} has {sorted(own)}, others {sorted(names)}"
            )
        for name, value in own.items():
            made[name][model, place, : len(value)] = value
    return made


def _checked(sequence: Mapping[str, Any], model: int, place: int) -> dict[str, torch.Tensor]:
    where = f"collate: sequence {place} of model {model}"
    if "input_ids" not in sequence:
        raise InvalidArgument(f"{where} has no input_ids, but {sorted(sequence)}")
    own = {name: torch.as_tensor(value) for name, value in sequence.items()}
    for name, value in own.items():
        if value.numel() and value.is_floating_point():
            raise InvalidArgument(f"{where} has {name} of {value.dtype}: a batch of tokens holds whole numbers")
    own = {name: value.long() for name, value in own.items()}
    length = len(own["input_ids"])
    own.setdefault("attention_mask", torch.ones(length, dtype=torch.int64))
    own.setdefault("labels", own["input_ids"].masked_fill(own["attention_mask"] == 0, IGNORED))
    for name, value in own.items():
        if value.shape != (length,) or not length:
            raise InvalidArgument(
                f"{where} has {name} of shape {list(value.shape)}: give one or more numbers per token"
            )
    return own


def micro_batches(batch: Mapping[str, torch.Tensor], sequences: int) -> Iterator[dict[str, torch.Tensor]]:
    """Split a batch into parts with at most `sequences` sequences per model; their losses add up to those of the whole.

    In parts of 4 sequences, a model with 16 sequences is in four parts and one with 4 in the first only. Each part has
    `targets` `[B]`, the number of targets of each model in the whole batch, by which `losses.next_token` divides. Parts
    without a sequence, at the end, are left out.
    """
    counts = targets_of(batch)
    for first in range(0, batch["input_ids"].shape[1], sequences):
        yield {**{name: value[:, first : first + sequences] for name, value in batch.items()}, "targets": counts}


def targets_of(batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Count the targets of each model `[B]` in float32: the labels that follow another token."""
    given = batch.get("targets")
    return (labels_of(batch)[..., 1:] != IGNORED).sum((1, 2)).float() if given is None else given


def labels_of(batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Return the labels `[B, N, T]` of the tokens that the mask keeps after another that it keeps; -100 elsewhere."""
    mask = batch.get("attention_mask")
    labels = batch.get("labels", batch["input_ids"])
    if mask is None:
        return labels
    kept = mask != 0
    return labels.masked_fill(~(kept & torch.nn.functional.pad(kept, (1, 0), value=True)[..., :-1]), IGNORED)


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
