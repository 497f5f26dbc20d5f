# SPDX-License-Identifier: MIT
"""Masked language modelling as in the original BERT (Devlin et al. 2019, §3.1 and appendix A.1)."""

from __future__ import annotations

from .._lazy import torch
from ..errors import InvalidArgument
from .batches import ArrayBatches
from .text import Corpus

IGNORE = -100  # the target of a position that is not trained on: `ignore_index` of torch's cross-entropy

_MASKED, _RANDOM = 0.8, 0.1  # of the chosen positions; the rest keep their token


def masked(
    corpus: Corpus, batch_size: int = 32, seq_len: int = 32, seed: int = 0, masked_fraction: float = 0.15
) -> ArrayBatches:
    """Batches of sequences `[N, L]` with masked tokens to predict, their places `[N, P]` and the original tokens there.

    The text is cut into sequences of `seq_len` tokens. In each sequence P tokens are chosen, in ascending order, and of
    these 80 % become `[MASK]`, 10 % a random token, and 10 % stay. Specials are never chosen: where a sequence has
    fewer than P other tokens, the target is `IGNORE`.

    Args:
        corpus: the text.
        batch_size: N, sequences in a batch.
        seq_len: L, tokens in a sequence.
        seed: seed of the order and of the masks.
        masked_fraction: P = max(1, round(masked_fraction · L)).

    Raises:
        InvalidArgument: a size below one, a fraction outside (0, 1], or a text shorter than one sequence.
    """
    if seq_len < 1:
        raise InvalidArgument(f"seq_len {seq_len} is below 1")
    if not 0.0 < masked_fraction <= 1.0:
        raise InvalidArgument(f"masked_fraction {masked_fraction} is not in (0, 1]")
    count = len(corpus.tokens) // seq_len
    if not count:
        raise InvalidArgument(f"the text has {len(corpus.tokens)} tokens, less than one sequence of {seq_len}")
    special = torch.zeros(corpus.vocab_size, dtype=torch.bool)
    special[list(corpus.special_ids)] = True
    ordinary = (~special).nonzero().squeeze(1)
    chosen = max(1, round(masked_fraction * seq_len))

    def prepare(generator: torch.Generator, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows = rows.long()
        # The P smallest of L uniform numbers are P places without repetition; specials come last.
        rank = torch.rand(rows.shape, generator=generator).masked_fill(special[rows], 2.0)
        positions = rank.topk(chosen, largest=False).indices.sort(1).values
        tokens = rows.gather(1, positions)
        rule = torch.rand(tokens.shape, generator=generator)
        other = ordinary[torch.randint(len(ordinary), tokens.shape, generator=generator)]
        changed = torch.where(rule < _MASKED, torch.full_like(other, corpus.mask_id), other)
        surplus = special[tokens]
        kept = torch.where(surplus | (rule >= _MASKED + _RANDOM), tokens, changed)
        return rows.scatter(1, positions, kept), positions, tokens.masked_fill(surplus, IGNORE)

    return ArrayBatches(
        torch.tensor(corpus.tokens[: count * seq_len]).view(count, seq_len), batch_size=batch_size, seed=seed,
        record=corpus.record(), sizes={"vocab_size": corpus.vocab_size}, prepare=prepare,
    )  # fmt: skip
