# SPDX-License-Identifier: MIT
"""Rows of whole numbers in files: written one after another, then sorted into parts by their begin."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .._files import OutputError
from ..errors import reason

_HELD = 1 << 18  # numbers in memory before they are written
_BLOCK = 1 << 16  # rows read at once

Rows = NDArray[np.int64]


class RowFile:
    """Rows `[N, width]` of int64 in a file; the first two numbers of a row are its begin and end, ns."""

    def __init__(self, path: Path, width: int) -> None:
        self.path, self.width = path, width
        self.count = 0
        self._held = array("q")

    def extend(self, row: Iterable[int], /) -> None:
        """Add a row."""
        self._held.extend(row)
        self.count += 1
        if len(self._held) >= _HELD:
            self._flush()

    def append(self, rows: Rows) -> None:
        """Add rows `[N, width]`."""
        self.count += len(rows)
        self._write(rows)

    def blocks(self) -> Iterator[Rows]:
        """Yield all rows, a bounded number of them at once."""
        self._flush()
        if not self.path.exists():
            return
        with open(self.path, "rb") as file:
            while len(block := np.fromfile(file, np.int64, _BLOCK * self.width)):
                yield block.reshape(-1, self.width)

    def all(self) -> Rows:
        """All rows."""
        parts = [*self.blocks()]
        return np.concatenate(parts) if parts else np.zeros((0, self.width), np.int64)

    def remove(self) -> None:
        """Delete the file; the rows are gone."""
        self.path.unlink(missing_ok=True)

    def _flush(self) -> None:
        if self._held:
            self._write(np.frombuffer(self._held, np.int64))
            self._held = array("q")

    def _write(self, rows: Rows) -> None:
        try:
            with open(self.path, "ab") as file:
                file.write(rows.tobytes())
        except OSError as error:
            raise OutputError(
                f"cannot write {self.path}: {reason(error)}; a large trace needs as much space in the folder "
                "for temporary files, which TMPDIR names"
            ) from error


def deal(files: Mapping[str, RowFile], cuts: Rows) -> list[dict[str, RowFile]]:
    """Deal out the rows of each file by their begin, to one set of files before, between and after the cuts.

    Args:
        files: files by kind; they are deleted.
        cuts: times, ascending.
    """
    dealt = [
        {kind: RowFile(file.path.with_name(f"{kind}-{number}"), file.width) for kind, file in files.items()}
        for number in range(len(cuts) + 1)
    ]
    for kind, file in files.items():
        for block in file.blocks():
            which = np.searchsorted(cuts, block[:, 0], side="right")
            order = np.argsort(which, kind="stable")
            numbers, begins = np.unique(which[order], return_index=True)
            for number, rows in zip(numbers, np.split(block[order], begins[1:]), strict=True):
                dealt[number][kind].append(rows)
        file.remove()
    return dealt
