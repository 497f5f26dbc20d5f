# SPDX-License-Identifier: MIT
"""Text as tokens: FineWeb's shards of the user's, else the interpreter's pages on the language, or its modules.

A shard (`*.bin`) has a head of 256 int32, then uint16. The last tenth of a text is held out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from .._lazy import numpy as np
from .._lazy import torch
from ..errors import BadData, InvalidArgument
from .batches import ArrayBatches, WholeBatch

_HEAD = 256  # int32 before the tokens of a shard
_WINDOWS = 32  # of the text that is held out
_MODULES = 40  # files of source code
Text = tuple["torch.Tensor", dict[str, Any]]


def load(kind: str, dataroot: str | Path | None, vocab: int) -> Text:
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
