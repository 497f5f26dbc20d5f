# SPDX-License-Identifier: MIT
"""Sources of text: a source yields paragraphs, and names its origin and its licence."""

from __future__ import annotations

import hashlib
import importlib
import itertools
import platform
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import InvalidArgument, Unavailable
from ._origin import named, sha256_of

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
