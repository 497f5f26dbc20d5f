# SPDX-License-Identifier: MIT
"""Batches for models whose numbers and lengths of sequences differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from ..errors import InvalidArgument

IGNORED = -100
_PADS = {"labels": IGNORED}


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
