# SPDX-License-Identifier: MIT
"""Masked language modelling as in the original BERT (Devlin et al. 2019, §3.1 and appendix A.1)."""

from __future__ import annotations

from typing import NamedTuple

from .._lazy import npt, torch
from .._lazy import numpy as np
from ..errors import InvalidArgument
from .text import Corpus

IGNORE = -100  # the target of a position that is not trained on: `ignore_index` of torch's cross-entropy

_MASKED, _RANDOM = 0.8, 0.1  # of the chosen positions; the rest keep their token
_BATCH_STREAM, _EPOCH_STREAM = 0, 1


class MaskedBatch(NamedTuple):
    """One batch; all three are int64 CPU tensors.

    Attributes:
        inputs: `[N, L]`, the sequences with some tokens replaced.
        positions: `[N, P]`, places of the tokens to predict in each sequence, ascending.
        targets: `[N, P]`, the original tokens there; `IGNORE` where a sequence has fewer than P tokens to mask.
    """

    inputs: torch.Tensor
    positions: torch.Tensor
    targets: torch.Tensor


class MaskedLM:
    """Batches of sequences with masked tokens to predict.

    The text is cut into sequences of `seq_len` tokens; each epoch takes all of them in a new order, less the
    last incomplete batch. In each sequence P tokens are chosen, and of these 80 % become `[MASK]`, 10 % a
    random token, and 10 % stay. Specials are never chosen. A batch depends on the seed and its number alone.

    Args:
        corpus: the text.
        batch_size: N, sequences in a batch.
        seq_len: L, tokens in a sequence.
        seed: seed of the order and of the masks.
        masked_fraction: P = max(1, round(masked_fraction · L)).

    Raises:
        InvalidArgument: a size below one, a fraction outside (0, 1], or a text shorter than one batch.
    """

    def __init__(
        self, corpus: Corpus, batch_size: int = 32, seq_len: int = 32, seed: int = 0, masked_fraction: float = 0.15
    ) -> None:
        for name, size in (("batch_size", batch_size), ("seq_len", seq_len)):
            if size < 1:
                raise InvalidArgument(f"{name} {size} is below 1")
        if not 0.0 < masked_fraction <= 1.0:
            raise InvalidArgument(f"masked_fraction {masked_fraction} is not in (0, 1]")
        sequences = len(corpus.tokens) // seq_len
        if sequences < batch_size:
            raise InvalidArgument(
                f"the text has {len(corpus.tokens)} tokens, {sequences} sequences of {seq_len}: less than "
                f"one batch of {batch_size}; use a longer text, or a smaller batch_size or seq_len"
            )
        self.corpus, self.batch_size, self.seq_len, self.seed = corpus, batch_size, seq_len, seed
        self.num_masked = max(1, round(masked_fraction * seq_len))
        self._sequences = corpus.tokens[: sequences * seq_len].reshape(sequences, seq_len)
        self._is_special = np.isin(np.arange(corpus.vocab_size), corpus.special_ids)
        self._ordinary = np.flatnonzero(~self._is_special)
        self._epoch, self._order = -1, np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        """Batches in an epoch."""
        return len(self._sequences) // self.batch_size

    def batch(self, i: int) -> MaskedBatch:
        """Return the i-th batch since training began, `i >= 0`, independent of earlier calls."""
        if i < 0:
            raise InvalidArgument(f"batch {i} does not exist: batches count from 0")
        sequences = self._sequences[self._rows(i)].astype(np.int64)  # [N, L]
        positions, targets, replacements = self._mask(sequences, i)
        np.put_along_axis(sequences, positions, replacements, axis=1)
        return MaskedBatch(*map(torch.from_numpy, (sequences, positions, targets)))

    def _rows(self, i: int) -> npt.NDArray[np.int64]:
        """Indices of the sequences in batch i, `[N]`."""
        epoch, place = divmod(i, len(self))
        if epoch != self._epoch:
            self._order = self._generator(_EPOCH_STREAM, epoch).permutation(len(self._sequences))
            self._epoch = epoch
        return self._order[place * self.batch_size : (place + 1) * self.batch_size]

    def _mask(self, sequences: npt.NDArray[np.int64], i: int) -> tuple[npt.NDArray[np.int64], ...]:
        """Draw positions, targets and replacements, each `[N, P]`."""
        length, chosen = self.seq_len, self.num_masked
        draws = self._generator(_BATCH_STREAM, i).random((len(sequences), length + 2 * chosen))
        # The P smallest of L uniform numbers are P places without repetition; specials come last.
        rank = np.where(self._is_special[sequences], 2.0, draws[:, :length])
        positions = np.sort(np.argpartition(rank, chosen - 1, axis=1)[:, :chosen], axis=1)
        tokens = np.take_along_axis(sequences, positions, axis=1)
        rule, other = draws[:, length : length + chosen], draws[:, length + chosen :]
        random_tokens = self._ordinary[(other * len(self._ordinary)).astype(np.int64)]
        changed = np.where(rule < _MASKED, self.corpus.mask_id, random_tokens)
        surplus = self._is_special[tokens]
        replacements = np.where((rule < _MASKED + _RANDOM) & ~surplus, changed, tokens)
        return positions, np.where(surplus, IGNORE, tokens), replacements

    def _generator(self, stream: int, number: int) -> np.random.Generator:
        """Return the random numbers of one batch or epoch, from a counter: each can be made without the others."""
        key = np.array([self.seed & (2**64 - 1), stream], dtype=np.uint64)
        counter = np.array([0, 0, 0, number], dtype=np.uint64)  # the low words count within the stream
        return np.random.Generator(np.random.Philox(key=key, counter=counter))
