# SPDX-License-Identifier: MIT
"""Pairs of sentences in two languages: WMT16's files in byte-pair pieces, or drawn with lengths like theirs."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from .._lazy import npt, torch
from .._lazy import numpy as np
from ..errors import InvalidArgument, Unavailable
from . import _origin
from ._origin import Origin, named, root_of, sha256_of

WMT16_VOCABULARY = 32_317  # pieces of `vocab.bpe.32000` and the four specials
SPECIALS = ("<pad>", "<unk>", "<s>", "<\\s>")  # their numbers are their places in this row
PAD, UNKNOWN, BEGIN, END = range(4)
VOCABULARY = "vocab.bpe.32000"
SOURCE, TARGET = (f"train.tok.clean.bpe.32000.{language}" for language in ("en", "de"))

FOLDERS = (".", "wmt16")
_FORMAT = 2  # of the cached entry
_SYNTHETIC_PAIRS = 20_480
_MEDIAN_WORDS, _SIGMA = 22.0, 0.6  # of a sentence: log-normal, cut at the longest
_BATCHES_IN_SHARD = 80  # which are sorted by length: what the batches of a bucket have in common


@dataclass(frozen=True, eq=False)
class Sentences:
    """Sentences one after the other: pieces int32 `[P]`, and bounds `[N + 1]`: each sentence's begin, the last one's
    end."""

    pieces: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int64]

    def __getitem__(self, i: int) -> npt.NDArray[np.int32]:
        return self.pieces[self.starts[i] : self.starts[i + 1]]

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        return self.starts[1:] - self.starts[:-1]


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs: sentence i of `target` translates sentence i of `source`; both begin with `<s>` and end with `<\\s>`."""

    source: Sentences
    target: Sentences
    vocab_size: int
    origin: Origin


class Batch(NamedTuple):
    """Int64 CPU tensors: `source` `[S, N]` and `target` `[T, N]`, padded with 0, and the source's lengths `[N]`,
    descending."""

    source: torch.Tensor
    lengths: torch.Tensor
    target: torch.Tensor


def load(
    kind: str = "auto",
    dataroot: str | Path | None = None,
    vocab_size: int = WMT16_VOCABULARY,
    max_length: int = 50,
    seed: int = 0,
) -> Pairs:
    """Load the user's WMT16 English-German under `dataroot`, else synthetic pairs.

    Args:
        kind: `auto` takes the files if they are there; `real` refuses to draw any; `synthetic` draws them.
        dataroot: the folder, or one with `wmt16` in it, that holds `vocab.bpe.32000` and the two aligned files
            `train.tok.clean.bpe.32000.en` and `.de`: one sentence a line, pieces between spaces.
        vocab_size: vocabulary of the synthetic pairs, specials included. Words follow Zipf's law, a sentence has a
            log-normal number of them (median 22, sigma 0.6), and its translation is each word's own other word.
        max_length: pieces in a sentence at most, with its two specials; longer pairs are left out.
        seed: seed of the synthetic pairs.

    Raises:
        InvalidArgument: an unknown kind, a dataroot that is not a folder, files that do not fit, by their line.
        Unavailable: `real` was asked for and there is none.
    """
    if max_length < 3:
        raise InvalidArgument(f"max_length must be 3 or more (two are specials), got {max_length}")
    root = root_of(kind, dataroot)
    for folder in [root / name for name in FOLDERS] if root else []:
        if any((folder / name).is_file() for name in (VOCABULARY, SOURCE, TARGET)):
            return _within(_files(folder), max_length)
    if kind == "real":
        raise Unavailable(
            "WMT16 English-German in byte-pair pieces",
            f"{VOCABULARY}, {SOURCE} and {TARGET} of {dataroot or 'no dataroot'}",
            "prepare it as MLPerf's rnn_translator does (download_dataset.sh)",
        )
    return _within(_synthetic(vocab_size, max_length, seed), max_length)


def _within(pairs: Pairs, longest: int) -> Pairs:
    """Return the pairs of which neither sentence is longer."""
    kept = np.flatnonzero((pairs.source.lengths <= longest) & (pairs.target.lengths <= longest))
    if not len(kept):
        raise InvalidArgument(f"{pairs.origin.source}: no pair of sentences of {longest} pieces or fewer")
    if len(kept) == len(pairs.source.lengths):
        return pairs
    source, target = (_joined(side[int(i)] for i in kept) for side in (pairs.source, pairs.target))
    origin = Origin(pairs.origin.source, pairs.origin.licence, len(kept), pairs.origin.sha256)
    return Pairs(source, target, pairs.vocab_size, origin)


def _joined(sentences: Iterator[npt.NDArray[np.int32]]) -> Sentences:
    rows = list(sentences)
    starts = np.cumsum([0, *map(len, rows)])
    return Sentences(np.concatenate(rows), starts)


def _files(folder: Path) -> Pairs:
    for name in (VOCABULARY, SOURCE, TARGET):
        if not (folder / name).is_file():
            raise InvalidArgument(f"{folder} has no {name}, which belongs to {VOCABULARY}, {SOURCE} and {TARGET}")
    digest = sha256_of(*(folder / name for name in (VOCABULARY, SOURCE, TARGET)))
    key = hashlib.sha256(f"{_FORMAT} {digest}".encode()).hexdigest()[:24]
    arrays, known = _origin.cached_arrays(f"pairs-{key}", lambda: _number(folder))
    source, target = (Sentences(arrays[f"{side}-pieces"], arrays[f"{side}-starts"]) for side in ("source", "target"))
    name = named(f"WMT16, {SOURCE} and .de", folder)
    origin = Origin(name, "that of the user's files", len(source.lengths), digest)
    return Pairs(source, target, known["vocab_size"], origin)


def _number(folder: Path) -> _origin.Arrays:
    pieces = [*SPECIALS, *(line.strip() for line in _lines(folder / VOCABULARY))]
    numbers = {piece: number for number, piece in enumerate(pieces)}
    source, target = (_number_file(folder / name, numbers) for name in (SOURCE, TARGET))
    a, b = len(source.lengths), len(target.lengths)
    if a != b:
        shorter, line = (SOURCE, a) if a < b else (TARGET, b)
        raise InvalidArgument(
            f"{folder / shorter} ends after line {line}, and the other file has {max(a, b)}: they are not aligned"
        )
    arrays = {
        f"{name}-{what}": getattr(side, what)
        for name, side in (("source", source), ("target", target))
        for what in ("pieces", "starts")
    }
    return arrays, {"vocab_size": len(pieces)}


def _number_file(path: Path, numbers: dict[str, int]) -> Sentences:
    pieces, starts = array("i"), array("q", [0])
    for line in _lines(path):
        pieces.append(BEGIN)
        pieces.extend(numbers.get(piece, UNKNOWN) for piece in line.split())
        pieces.append(END)
        starts.append(len(pieces))
    if len(starts) == 1:
        raise InvalidArgument(f"{path} is empty")
    return Sentences(np.frombuffer(pieces, np.int32), np.frombuffer(starts, np.int64))


def _lines(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield line.decode()
            except UnicodeDecodeError as error:
                raise InvalidArgument(f"{path}, line {number}: not UTF-8 text ({error})") from error


def _synthetic(vocab_size: int, longest: int, seed: int) -> Pairs:
    words = vocab_size - len(SPECIALS)
    if words < 1:
        raise InvalidArgument(f"vocab_size must be above {len(SPECIALS)}, the specials; got {vocab_size}")
    random = np.random.Generator(np.random.Philox(key=seed & (2**64 - 1)))
    share = np.cumsum(1.0 / np.arange(1, words + 1))
    counts = np.exp(np.log(_MEDIAN_WORDS) + _SIGMA * random.standard_normal(_SYNTHETIC_PAIRS))
    counts = np.clip(np.rint(counts), 1, longest - 2).astype(np.int64)
    drawn = np.searchsorted(share, random.random(int(counts.sum())) * share[-1], side="right")
    other = random.permutation(words)
    at = np.cumsum(counts)[:-1]
    source, target = (
        _joined(np.concatenate(([BEGIN], row, [END])).astype(np.int32) for row in np.split(side, at))
        for side in (drawn + len(SPECIALS), other[drawn] + len(SPECIALS))
    )
    digest = hashlib.sha256(source.pieces.tobytes() + target.pieces.tobytes()).hexdigest()
    law = f"synthetic: Zipf's law, log-normal lengths of median {_MEDIAN_WORDS:.0f} words, seed {seed}"
    return Pairs(source, target, vocab_size, Origin(law, "none needed", len(counts), digest))


class Batches:
    """Batches without end, each of sentences of about one length.

    An epoch takes all pairs in a random order, cut into shards of 80 batches, in which they are sorted by length
    (source and target together); the batches then come in a random order, less the last incomplete one. Within a batch
    the longest source is first. An epoch depends on the seed and its number alone.
    """

    def __init__(self, pairs: Pairs, batch_size: int, seed: int = 0) -> None:
        count = len(pairs.source.lengths)
        if count < batch_size:
            raise InvalidArgument(f"{pairs.origin.source}: {count} pairs are less than one batch of {batch_size}")
        self.pairs, self.batch_size, self.seed = pairs, batch_size, seed
        self._epoch, self._at = 0, 0
        self._order = self._shuffled()

    def next(self) -> Batch:
        if self._at == len(self._order):
            self._epoch, self._at = self._epoch + 1, 0
            self._order = self._shuffled()
        rows = self._order[self._at]
        self._at += 1
        lengths = self.pairs.source.lengths[rows]
        rows = rows[np.argsort(-lengths, kind="stable")]
        source, target = (_padded(side, rows) for side in (self.pairs.source, self.pairs.target))
        return Batch(source, torch.from_numpy(self.pairs.source.lengths[rows]), target)

    def _shuffled(self) -> npt.NDArray[np.int64]:
        """Indices of the pairs in each batch of the epoch, `[batches, N]`."""
        key = np.array([self.seed & (2**64 - 1), self._epoch], dtype=np.uint64)
        random = np.random.Generator(np.random.Philox(key=key))
        whole = len(self.pairs.source.lengths) // self.batch_size * self.batch_size
        order = random.permutation(len(self.pairs.source.lengths))[:whole]
        lengths = self.pairs.source.lengths + self.pairs.target.lengths
        size = self.batch_size * _BATCHES_IN_SHARD
        shards = [order[i : i + size] for i in range(0, whole, size)]
        sorted_shards = [shard[np.argsort(lengths[shard], kind="stable")] for shard in shards]
        return random.permutation(np.concatenate(sorted_shards).reshape(-1, self.batch_size))


def _padded(side: Sentences, rows: npt.NDArray[np.int64]) -> torch.Tensor:
    """Return the sentences as columns, `[longest, N]`."""
    lengths = side.lengths[rows]
    columns = np.full((int(lengths.max()), len(rows)), PAD, dtype=np.int64)
    for column, row in enumerate(rows):
        columns[: lengths[column], column] = side[row]
    return torch.from_numpy(columns)
