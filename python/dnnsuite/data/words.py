# SPDX-License-Identifier: MIT
"""Text as one long row of numbers for a model of the next one: words of WikiText, or pieces of what Python ships."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InvalidArgument
from . import _cache, text
from ._sources import WIKITEXT_FOLDERS

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

SOURCES = ("auto", "real", *text.SOURCES[1:])
WIKITEXT_2_WORDS = 33_278
END_OF_LINE = "<eos>"

_FORMAT = 1  # of the cached entry
_PARTS = ("train", "valid")
_NAMES = ("wiki.{}.tokens", "wiki.{}.raw", "{}.txt")
_VALID_SHARE = 10  # one part in so many of a text without a validation file


@dataclass(frozen=True, eq=False)
class Words:
    """A text for training and one for validation.

    Attributes:
        train, valid: int32 `[T]`, read-only.
        vocab_size: every number is below it.
        source: what the text is, and what the numbers stand for.
        licence: of the text.
        sha256: of the text before it was numbered; of the numbers when they are synthetic.
    """

    train: npt.NDArray[np.int32]
    valid: npt.NDArray[np.int32]
    vocab_size: int
    source: str
    licence: str
    sha256: str


def load(
    source: str = "auto",
    dataroot: str | Path | None = None,
    vocab_size: int = WIKITEXT_2_WORDS,
    seed: int = 0,
) -> Words:
    """The text to train on.

    Args:
        source: `real` or `wikitext` reads WikiText-2 or -103 (Merity et al., 2016) under `dataroot`: what is between
            spaces is a word, and each line ends with one more. `pydoc` is CPython's own documentation in pieces,
            `synthetic` draws from a Zipf law; both as in `dnnsuite.data.text`. `auto` takes the files if there is a
            `dataroot`, else the documentation, else the law. `real` without a `dataroot` is `pydoc`.
        dataroot: the folder with WikiText's files.
        vocab_size: of the others than WikiText, which has its own. A smaller text leaves the rest unused: the model,
            and so the work, is that of this many words all the same.
        seed: of the synthetic numbers.

    Raises:
        InvalidArgument: an unknown source, or a dataroot without the files, or one that is not text.
        Unavailable: as `dnnsuite.data.text.load`.
    """
    if source not in SOURCES:
        raise InvalidArgument(f"data source {source!r} is not one of {', '.join(SOURCES)}")
    if source == "wikitext" and dataroot is None:
        raise InvalidArgument("data source 'wikitext' needs a dataroot, the folder with its files")
    if source in ("auto", "real", "wikitext") and dataroot is not None:
        return wikitext(dataroot)
    corpus = text.load("pydoc" if source == "real" else source, None, vocab_size, seed)
    at = len(corpus.tokens) - len(corpus.tokens) // _VALID_SHARE
    train, valid = corpus.tokens[:at], corpus.tokens[at:]
    return Words(train, valid, vocab_size, corpus.source, corpus.licence, corpus.sha256)


def wikitext(dataroot: str | Path) -> Words:
    """The words of WikiText's training and validation files, numbered in the order in which they appear.

    The vocabulary is of all three files, the test file's words too where it is there, as the original's is: 33 278
    words of WikiText-2.
    """
    folder, names = _find(Path(dataroot))
    digest = hashlib.sha256()
    for name in names:
        with (folder / name).open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    key = hashlib.sha256(f"{_FORMAT} {digest.hexdigest()}".encode()).hexdigest()[:24]
    words = _cache.cached(f"words-{key}", lambda: _number(folder, names, digest.hexdigest()), _write, _read)
    return replace(words, source=f"WikiText, {names[0]} of {folder.name or folder}, by word")


def pad_vocabulary(words: Words, multiple: int) -> Words:
    """The same text with a vocabulary rounded up to a multiple, whose last words are never seen."""
    return replace(words, vocab_size=-(-words.vocab_size // multiple) * multiple)


def _find(root: Path) -> tuple[Path, list[str]]:
    """The folder, and its files for training, validation and, if it is there, test."""
    for folder in (root / name for name in WIKITEXT_FOLDERS):
        for pattern in _NAMES:
            if (folder / pattern.format("train")).is_file():
                needed = [pattern.format(part) for part in _PARTS]
                if not (folder / needed[1]).is_file():
                    raise InvalidArgument(f"{folder} has {needed[0]} but not {needed[1]}")
                test = pattern.format("test")
                return folder, [*needed, test] if (folder / test).is_file() else needed
    wrong = "has no WikiText files" if root.is_dir() else "is not a folder"
    looked = ", ".join(name.format("train") for name in _NAMES)
    raise InvalidArgument(
        f"dataroot {str(root)!r} {wrong}; looked for {looked} in it and in its folders "
        f"{', '.join(WIKITEXT_FOLDERS[1:])}"
    )


def _number(folder: Path, names: list[str], sha256: str) -> Words:
    numbers: dict[str, int] = {}
    parts = [_number_file(folder / name, numbers) for name in names]
    return Words(parts[0], parts[1], len(numbers), "", "CC BY-SA 3.0", sha256)


def _number_file(path: Path, numbers: dict[str, int]) -> npt.NDArray[np.int32]:
    from array import array

    import numpy as np

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


def _write(words: Words, folder: Path) -> None:
    import numpy as np

    for part in _PARTS:
        np.save(folder / f"{part}.npy", getattr(words, part))
    record = {"vocab_size": words.vocab_size, "licence": words.licence, "sha256": words.sha256}
    record |= {part: len(getattr(words, part)) for part in _PARTS}
    (folder / "words.json").write_text(json.dumps(record), encoding="utf-8")


def _read(folder: Path) -> Words:
    import numpy as np

    record = json.loads((folder / "words.json").read_text(encoding="utf-8"))
    train, valid = (np.load(folder / f"{part}.npy", mmap_mode="r", allow_pickle=False) for part in _PARTS)
    for part, numbers in zip(_PARTS, (train, valid), strict=True):
        if numbers.dtype != np.int32 or numbers.shape != (record[part],):
            raise ValueError(f"{folder}: {part} is {numbers.dtype} {numbers.shape}")
    return Words(train, valid, record["vocab_size"], "", record["licence"], record["sha256"])
