# SPDX-License-Identifier: MIT
"""Text as one long row of token numbers.

The tokeniser is a byte-level BPE of Hugging Face `tokenizers`, trained on the very text it then tokenises.
(A WordPiece vocabulary came out different in each process with 0.23: its first tokens are numbered in the
order of a hash table. BPE with a given alphabet is always the same, which the replicas of a run rely on.)
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._lazy import npt
from .._lazy import numpy as np
from ..errors import InvalidArgument, Unavailable, did_you_mean
from . import _cache, _sources

SOURCES = ("auto", "pydoc", "wikitext", "synthetic")
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # their numbers are their places in this row
PAD_ID, UNK_ID, CLS_ID, SEP_ID, MASK_ID = range(len(SPECIALS))

_FORMAT = 2  # of the cached entry and of the cleaning in _sources; raise it when either changes
_SMALLEST_VOCABULARY = len(SPECIALS) + 256  # a byte-level BPE starts from the 256 bytes
_TRAINING_CHARACTERS = 32 << 20  # the tokeniser learns from this much of the text at most
_PARAGRAPHS_AT_ONCE = 4096
_SYNTHETIC_TOKENS = 1 << 17  # about as many as the default text has


@dataclass(frozen=True, eq=False)
class Corpus:
    """A tokenised text.

    Attributes:
        tokens: int32 `[T]`, read-only, possibly mapped from a file. Each paragraph ends with `[SEP]`.
        vocab_size: every token is below it.
        pad_id, mask_id: the numbers of `[PAD]` and `[MASK]`.
        special_ids: the numbers of all specials; they are never masked nor drawn at random.
        source: name of the text with its version, and how it was tokenised.
        licence: licence of the text.
        sha256: hash of the text before it was tokenised; of the tokens when they are synthetic.
    """

    tokens: npt.NDArray[np.int32]
    vocab_size: int
    pad_id: int
    mask_id: int
    special_ids: tuple[int, ...]
    source: str
    licence: str
    sha256: str

    def record(self) -> dict[str, Any]:
        """Provenance, for the record."""
        return {**{name: getattr(self, name) for name in ("source", "licence", "sha256")}, "tokens": len(self.tokens)}


def load(source: str = "auto", dataroot: str | Path | None = None, vocab_size: int = 8192, seed: int = 0) -> Corpus:
    """Load the text to train on.

    Args:
        source: `pydoc` is CPython's own documentation, which comes with the interpreter (PSF licence);
            `wikitext` reads the files of WikiText-2 or -103 under `dataroot`; `synthetic` draws tokens from a
            Zipf law. `auto` takes `wikitext` if there is a `dataroot`, else `pydoc`, else (an interpreter
            without it) `synthetic`.
        dataroot: the folder with the WikiText files.
        vocab_size: tokens in the vocabulary, specials included. A text too small for it gives fewer.
        seed: seed of the synthetic tokens; the others have nothing random.

    Raises:
        InvalidArgument: an unknown source, a vocabulary too small, or a dataroot without the files.
        Unavailable: the interpreter has no documentation text, or `tokenizers` is not installed.
    """
    if source not in SOURCES:
        raise InvalidArgument(
            f"data source {source!r} is not one of {', '.join(SOURCES)}{did_you_mean(source, SOURCES)}"
        )
    if vocab_size < _SMALLEST_VOCABULARY:
        raise InvalidArgument(f"vocab_size {vocab_size} is below {_SMALLEST_VOCABULARY}: bytes and specials")
    if source == "synthetic":
        return _synthetic(vocab_size, seed)
    if source == "wikitext" or (source == "auto" and dataroot is not None):
        if dataroot is None:
            raise InvalidArgument("data source 'wikitext' needs a dataroot, the folder with its files")
        return _tokenised(_sources.wikitext(dataroot), vocab_size)
    try:
        raw = _sources.pydoc()
    except Unavailable:
        if source == "pydoc":
            raise
        return _synthetic(vocab_size, seed)
    return _tokenised(raw, vocab_size)


def _tokenised(raw: _sources.RawText, vocab_size: int) -> Corpus:
    try:  # asked of the installed files, because importing it takes longer than reading the cache
        version = importlib.metadata.version("tokenizers")
    except importlib.metadata.PackageNotFoundError as error:
        raise Unavailable("the package tokenizers", "this Python", "pip install tokenizers") from error
    recipe = json.dumps([_FORMAT, raw.source, raw.sha256, vocab_size, version])
    key = hashlib.sha256(recipe.encode()).hexdigest()[:24]
    arrays, known = _cache.cached_arrays(f"text-{key}", lambda: _as_kept(tokenise(raw, vocab_size, version)))
    return _corpus(arrays["tokens"], **known)


def _as_kept(corpus: Corpus) -> _cache.Arrays:
    names = ("vocab_size", "source", "licence", "sha256")
    return {"tokens": corpus.tokens}, {name: getattr(corpus, name) for name in names}


def tokenise(raw: _sources.RawText, vocab_size: int, version: str) -> Corpus:
    tokenizer = train_tokenizer(raw.paragraphs(), vocab_size)
    parts = []
    paragraphs = raw.paragraphs()
    while some := list(itertools.islice(paragraphs, _PARAGRAPHS_AT_ONCE)):
        rows = ([*encoding.ids, SEP_ID] for encoding in tokenizer.encode_batch_fast(some))
        parts.append(np.fromiter(itertools.chain.from_iterable(rows), dtype=np.int32))
    if not parts:
        raise InvalidArgument(f"{raw.source} holds no text")
    size = tokenizer.get_vocab_size()
    source = f"{raw.source}; byte-level BPE of {size} tokens trained on it by tokenizers {version}"
    return _corpus(np.concatenate(parts), size, source, raw.licence, raw.sha256)


def train_tokenizer(paragraphs: Iterator[str], vocab_size: int) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIALS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),  # it is a set; numbers follow its order
        show_progress=False,
    )
    tokenizer.train_from_iterator(at_most(paragraphs, _TRAINING_CHARACTERS), trainer)
    return tokenizer


def at_most(paragraphs: Iterator[str], characters: int) -> Iterator[str]:
    for paragraph in paragraphs:
        yield paragraph
        characters -= len(paragraph)
        if characters <= 0:
            return


def _synthetic(vocab_size: int, seed: int) -> Corpus:
    """Tokens by Zipf's law: the r-th most frequent word has a share of about 1/r."""
    ordinary = vocab_size - len(SPECIALS)
    share = np.cumsum(1.0 / np.arange(1, ordinary + 1))
    # Philox by its key, not by a SeedSequence: the numbers are then defined by the algorithm alone.
    uniform = np.random.Generator(np.random.Philox(key=seed & (2**64 - 1))).random(_SYNTHETIC_TOKENS)
    tokens = (np.searchsorted(share, uniform * share[-1], side="right") + len(SPECIALS)).astype(np.int32)
    digest = hashlib.sha256(tokens.tobytes()).hexdigest()
    return _corpus(tokens, vocab_size, f"synthetic: Zipf's law, seed {seed}", "none needed", digest)


def _corpus(tokens: npt.NDArray[np.int32], vocab_size: int, source: str, licence: str, sha256: str) -> Corpus:
    tokens.setflags(write=False)
    special_ids = tuple(range(len(SPECIALS)))
    return Corpus(tokens, vocab_size, PAD_ID, MASK_ID, special_ids, source, licence, sha256)
