# SPDX-License-Identifier: MIT
"""Text as one long row of token numbers, and masked language modelling on it, as in the original BERT (Devlin et al.
2019, §3.1 and appendix A.1).

A source yields paragraphs, and names its origin and its licence. The tokeniser is a byte-level BPE of Hugging Face
`tokenizers`, trained on the very text it then tokenises. (A WordPiece vocabulary came out different in each process
with 0.23: its first tokens are numbered in the order of a hash table. BPE with a given alphabet is always the same,
which the replicas of a run rely on.)
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import itertools
import json
import platform
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._lazy import npt, torch
from .._lazy import numpy as np
from ..errors import InvalidArgument, Unavailable, did_you_mean
from . import _origin
from ._origin import named, sha256_of
from .batches import ArrayBatches

# Merity et al. 2016 published the tokens files and the raw ones; other projects call them `train.txt`.
_SUFFIXES = ("", "-v1", "-raw", "-raw-v1")
WIKITEXT_FOLDERS = (".", *(f"wikitext-{size}{suffix}" for size in (2, 103) for suffix in _SUFFIXES))
WIKITEXT_FILES = ("wiki.train.tokens", "wiki.train.raw", "train.txt")

_ORNAMENT = re.compile(r"([^\w\s])\1{2,}")  # a line of nothing but ===, ***, --- under a title
_HEADING = re.compile(r"(=(?: =)*|={2,}) (?P<title>.*?) \1")  # " = Title = ", " = = Section = = "
_ESCAPED = re.compile(r" @([-,.])@ ")  # the tokens files write 1 @,@ 000 for 1,000


@dataclass(frozen=True)
class RawText:
    """Text before it is tokenised.

    Attributes:
        source: name with the version.
        licence: licence for its use.
        sha256: hash of the bytes that were read.
        paragraphs: yields the paragraphs in order; may be called again.
    """

    source: str
    licence: str
    sha256: str
    paragraphs: Callable[[], Iterator[str]]


def pydoc() -> RawText:
    """CPython's own documentation of the language: half a megabyte of English prose, part of the interpreter.

    Raises:
        Unavailable: this Python was installed without it.
    """
    try:
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    except ImportError as error:
        raise Unavailable(
            f"the text of Python's documentation ({error})",
            "the module pydoc_data.topics",
            "install the full standard library, or use WikiText files (dataroot) or the synthetic source",
        ) from error
    pages = [topics[name] for name in sorted(topics)]
    digest = hashlib.sha256("\0".join(pages).encode()).hexdigest()
    return RawText(
        f"pydoc_data.topics of Python {platform.python_version()}",
        "PSF-2.0",
        digest,
        lambda: itertools.chain.from_iterable(map(_prose_paragraphs, pages)),
    )


def _prose_paragraphs(page: str) -> Iterator[str]:
    for block in re.split(r"\n\s*\n", page):
        lines = [line.strip() for line in block.splitlines()]
        words = " ".join(line for line in lines if not _ORNAMENT.fullmatch(line)).split()
        if words:
            yield " ".join(words)


def wikitext(dataroot: str | Path) -> RawText:
    """Read the training part of WikiText-2 or WikiText-103 (Merity et al. 2016), from files that the user has.

    Args:
        dataroot: a folder that holds one of `WIKITEXT_FILES`, itself or in one of `WIKITEXT_FOLDERS`. The
            first is taken.

    Raises:
        InvalidArgument: there is none, or it is not UTF-8 text.
    """
    root = Path(dataroot)
    for folder, name in itertools.product(WIKITEXT_FOLDERS, WIKITEXT_FILES):
        path = root / folder / name
        if path.is_file():
            break
    else:
        wrong = "has no WikiText file" if root.is_dir() else "is not a folder"
        raise InvalidArgument(
            f"dataroot {str(root)!r} {wrong}; looked for "
            f"{', '.join(WIKITEXT_FILES)} there and in its folders {', '.join(WIKITEXT_FOLDERS[1:])}"
        )
    return RawText(
        named(f"WikiText, {path.relative_to(root)}", path.parent),
        "CC BY-SA 3.0",
        sha256_of(path),
        lambda: _wikitext_paragraphs(path),
    )


def _wikitext_paragraphs(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8") as file:
            for line in file:
                if paragraph := clean_wikitext(line):
                    yield paragraph
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{path} is not UTF-8 text ({error}); a WikiText file is") from error


def clean_wikitext(line: str) -> str:
    """One line of a WikiText file as plain text: headings without their signs, `<unk>` as `[UNK]`."""
    line = line.strip()
    if heading := _HEADING.fullmatch(line):
        line = heading["title"].strip()
    return _ESCAPED.sub(r"\1", line).replace("<unk>", "[UNK]")


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
        return _tokenised(wikitext(dataroot), vocab_size)
    try:
        raw = pydoc()
    except Unavailable:
        if source == "pydoc":
            raise
        return _synthetic(vocab_size, seed)
    return _tokenised(raw, vocab_size)


def _tokenised(raw: RawText, vocab_size: int) -> Corpus:
    try:  # asked of the installed files, because importing it takes longer than reading the cache
        version = importlib.metadata.version("tokenizers")
    except importlib.metadata.PackageNotFoundError as error:
        raise Unavailable("the package tokenizers", "this Python", "pip install tokenizers") from error
    recipe = json.dumps([_FORMAT, raw.source, raw.sha256, vocab_size, version])
    key = hashlib.sha256(recipe.encode()).hexdigest()[:24]
    arrays, known = _origin.cached_arrays(f"text-{key}", lambda: _as_kept(tokenise(raw, vocab_size, version)))
    return _corpus(arrays["tokens"], **known)


def _as_kept(corpus: Corpus) -> _origin.Arrays:
    names = ("vocab_size", "source", "licence", "sha256")
    return {"tokens": corpus.tokens}, {name: getattr(corpus, name) for name in names}


def tokenise(raw: RawText, vocab_size: int, version: str) -> Corpus:
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
