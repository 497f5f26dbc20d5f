# SPDX-License-Identifier: MIT
"""Text as one long row of numbers for a language model: words of WikiText, or pieces of a text that Python ships; or as
tokens: FineWeb's shards of the user's, else the interpreter's pages on the language, or its modules.

A shard (`*.bin`) has a head of 256 int32, then uint16. The last tenth of a text is held out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from .._lazy import npt, torch
from .._lazy import numpy as np
from ..errors import BadData, InvalidArgument
from . import _origin, text
from ._origin import Origin, named, root_of, sha256_of
from .batches import ArrayBatches, WholeBatch
from .text import WIKITEXT_FOLDERS

WIKITEXT_2_WORDS = 33_278
END_OF_LINE = "<eos>"

_FORMAT = 2  # of the cached entry
_PARTS = ("train", "valid")
_NAMES = ("wiki.{}.tokens", "wiki.{}.raw", "{}.txt")
_VALID_SHARE = 10  # one part in so many of a text without a validation file


@dataclass(frozen=True, eq=False)
class Words:
    """A text for training and one for validation.

    Attributes:
        train, valid: int32 `[T]`, read-only.
        vocab_size: every number is below it.
        origin: the text, the meaning of the numbers, and how many are for training.
    """

    train: npt.NDArray[np.int32]
    valid: npt.NDArray[np.int32]
    vocab_size: int
    origin: Origin


def load(
    kind: str = "auto", dataroot: str | Path | None = None, vocab_size: int = WIKITEXT_2_WORDS, seed: int = 0
) -> Words:
    """Load the user's WikiText under `dataroot`, else CPython's own documentation, else numbers of a Zipf law.

    Args:
        kind: `auto` takes the first that there is; `real` refuses the law; `synthetic` is the law.
        dataroot: the folder with the files of WikiText-2 or -103 (Merity et al., 2016). What is between spaces is a
            word, and each line ends with one more.
        vocab_size: size for texts other than WikiText, which has its own. The documentation comes in pieces, and the
            law's numbers are drawn, as in `dnnsuite.data.text`. Where the text has fewer, the rest are never seen:
            the model, and so the work, is still that of this many words.
        seed: seed of the law.

    Raises:
        InvalidArgument: an unknown kind, a dataroot that is not a folder, a file that is not text, by its line.
        Unavailable: `real` was asked for and there is none.
    """
    root = root_of(kind, dataroot)
    if root and (found := files_of(root)):
        return _wikitext(*found)
    corpus = text.load({"real": "pydoc"}.get(kind, kind), None, vocab_size, seed)
    at = len(corpus.tokens) - len(corpus.tokens) // _VALID_SHARE
    origin = Origin(corpus.source, corpus.licence, at, corpus.sha256)
    return Words(corpus.tokens[:at], corpus.tokens[at:], vocab_size, origin)


def _wikitext(folder: Path, names: list[str]) -> Words:
    """Words numbered in the order in which they appear.

    The vocabulary is of all three files, the test file's words too where it is there, as the original's is: 33 278
    words of WikiText-2.
    """
    digest = sha256_of(*(folder / name for name in names))
    key = hashlib.sha256(f"{_FORMAT} {digest}".encode()).hexdigest()[:24]
    arrays, known = _origin.cached_arrays(f"words-{key}", lambda: _number(folder, names))
    source = named(f"WikiText, {folder.name}/{names[0]}, by word", folder)
    origin = Origin(source, "CC BY-SA 3.0", len(arrays["train"]), digest)
    return Words(arrays["train"], arrays["valid"], known["vocab_size"], origin)


def pad_vocabulary(words: Words, multiple: int) -> Words:
    """Return the same text with a vocabulary rounded up to a multiple, whose last words are never seen."""
    return replace(words, vocab_size=-(-words.vocab_size // multiple) * multiple)


def files_of(root: Path) -> tuple[Path, list[str]] | None:
    """Find the folder, and its files for training, validation and, if it is there, test."""
    for folder in (root / name for name in WIKITEXT_FOLDERS):
        for pattern in _NAMES:
            if (folder / pattern.format("train")).is_file():
                needed = [pattern.format(part) for part in _PARTS]
                if not (folder / needed[1]).is_file():
                    raise InvalidArgument(f"{folder} has {needed[0]} but not {needed[1]}")
                test = pattern.format("test")
                return folder, [*needed, test] if (folder / test).is_file() else needed
    return None


def _number(folder: Path, names: list[str]) -> _origin.Arrays:
    numbers: dict[str, int] = {}
    parts = [_number_file(folder / name, numbers) for name in names]  # the test file's words count, too
    return dict(zip(_PARTS, parts, strict=False)), {"vocab_size": len(numbers)}


def _number_file(path: Path, numbers: dict[str, int]) -> npt.NDArray[np.int32]:
    from array import array

    found = array("i")
    with path.open("rb") as file:
        for line_number, line in enumerate(file, 1):
            try:
                words = line.decode().split()
            except UnicodeDecodeError as error:
                raise InvalidArgument(f"{path}, line {line_number}: not UTF-8 text ({error})") from error
            found.extend(numbers.setdefault(word, len(numbers)) for word in (*words, END_OF_LINE))
    if not found:
        raise InvalidArgument(f"{path} is empty")
    return np.frombuffer(found, dtype=np.int32)


_HEAD = 256  # int32 before the tokens of a shard
_WINDOWS = 32  # of the text that is held out
_MODULES = 40  # files of source code
Text = tuple["torch.Tensor", dict[str, Any]]


def load_tokens(kind: str, dataroot: str | Path | None, vocab: int) -> Text:
    """Return all tokens, and where they come from.

    Raises:
        BadData: a shard is damaged, or has tokens beyond `vocab`.
    """
    shards = [] if kind == "synthetic" or not dataroot else sorted(Path(dataroot).glob("*.bin"))
    if shards:
        return _shard(shards[0], vocab), {"source": f"{shards[0].name}: tokens of the user's", "licence": "the user's"}
    return pages()


def _shard(path: Path, vocab: int) -> torch.Tensor:
    size = path.stat().st_size - 4 * _HEAD
    if size < 2 or size % 2:
        raise BadData(f"{path} is not a shard of tokens, which is a head of {_HEAD} int32 and uint16 after it")
    tokens = np.fromfile(path, np.uint16, offset=4 * _HEAD).astype(np.int32)
    if tokens.max() >= vocab:
        raise BadData(f"{path} has the token {tokens.max()}: set vocab to {tokens.max() + 1} or more")
    return torch.from_numpy(tokens)


@lru_cache(maxsize=1)
def pages() -> Text:
    """Bytes of the pages on the language that come with the interpreter."""
    from pydoc_data.topics import topics

    # Pages quote each other: a paragraph is taken once, lest one that is held out is learned from another page.
    paragraphs = dict.fromkeys("\n\n".join(topics[name] for name in sorted(topics)).split("\n\n"))
    return _bytes("\n\n".join(paragraphs).encode(), "CPython's pages on the language")


@lru_cache(maxsize=1)
def modules() -> Text:
    """Bytes of modules of the standard library."""
    folder = Path(hashlib.__file__).parent
    files = sorted(folder.glob("[a-l]*.py"))[:_MODULES]
    if not files:
        raise InvalidArgument(f"{folder} has no source code to learn: this interpreter comes without it")
    return _bytes(b"\n".join(path.read_bytes() for path in files), f"{len(files)} modules of CPython's library")


def _bytes(whole: bytes, what: str) -> Text:
    record = {"source": f"{what}, as bytes", "licence": "PSF-2.0", "sha256": hashlib.sha256(whole).hexdigest()}
    return torch.frombuffer(bytearray(whole), dtype=torch.uint8), record


def windows(text: tuple[torch.Tensor, Mapping[str, Any]], length: int, batch_size: int, seed: int) -> ArrayBatches:
    """Windows `[N, length]` that begin anywhere in the first nine tenths, and the tokens after each of theirs."""
    tokens, record = text[0][: len(text[0]) * 9 // 10], text[1]
    if len(tokens) < 3 * length:
        raise InvalidArgument(f"length {length}: the text has {len(tokens)} tokens to train on, too few")
    steps = torch.arange(length + 1)

    def prepare(generator: torch.Generator, starts: torch.Tensor) -> tuple[torch.Tensor, ...]:
        moved = starts + torch.randint(length, starts.shape, generator=generator)
        rows = tokens[moved[:, None] + steps].long()
        return rows[:, :-1], rows[:, 1:]

    starts = torch.arange(0, len(tokens) - 2 * length, length)
    return ArrayBatches(starts, batch_size=batch_size, seed=seed, record=record, prepare=prepare)


def held_out(text: tuple[torch.Tensor, Mapping[str, Any]], length: int) -> WholeBatch:
    """Windows of the last tenth, evenly spread."""
    tokens = text[0][len(text[0]) * 9 // 10 :]
    starts = torch.linspace(0, len(tokens) - length - 1, _WINDOWS).long()
    rows = tokens[starts[:, None] + torch.arange(length + 1)].long()
    return WholeBatch((rows[:, :-1], rows[:, 1:]), text[1])
