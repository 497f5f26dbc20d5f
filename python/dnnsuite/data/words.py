# SPDX-License-Identifier: MIT
"""Text as one long row of numbers for a language model: words of WikiText, or pieces of a text that Python ships."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from .._lazy import npt
from .._lazy import numpy as np
from ..errors import InvalidArgument
from . import _origin, text
from ._origin import Origin, named, root_of, sha256_of
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
