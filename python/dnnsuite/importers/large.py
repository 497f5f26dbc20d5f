# SPDX-License-Identifier: MIT
"""Results of a trace of torch.profiler of any size, in bounded memory.

The rows of its events go to temporary files, are sorted into stretches of time, and one stretch after another is
analysed as a small trace is; sums of stretches are the sums of the whole. A stretch ends where torch.profiler's step
does, and nowhere within an operator.
"""

from __future__ import annotations

import tempfile
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .._files import OutputError, replacing
from .._lazy import pandas as pd
from ..errors import reason
from ._extent import clock_offset_ns, disagreement
from ._loading import sniff
from ._merging import Merged, Stretch
from ._text import is_packed
from ._trace_rows import COLUMNS, TraceRows, columns_of
from .kineto import collect, steps_table, tables_of_trace

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


_LARGE_BYTES = 100 << 20
_PACKED = 10  # by which gzip makes a trace smaller, about
_ROWS_AT_ONCE = 200_000
COMPARED = 1 << 17  # launches by which clocks are compared, about
_CANDIDATES = 1 << 14  # times at which a stretch without steps may be cut
_CARRIED = ("kernels", "memops", "overhead", "markers")  # rows that reach over a cut are seen on both of its sides

Times = NDArray[np.int64]
Windows = list[tuple[int, int]]


@dataclass(frozen=True)
class LargeTrace:
    """A trace's results, without its tables.

    Attributes:
        rows: number of rows that each table would have.
        results: results like those of :func:`dnnsuite.importers.analyse_trace` for a small trace; the median of a
            kernel that has thousands of different durations is known to three digits.
    """

    path: Path
    rows: dict[str, int]
    results: dict[str, pd.DataFrame]
    notes: list[str] = field(default_factory=list)
    definitions: dict[str, dict[str, str]] = field(default_factory=dict)
    written: list[Path] = field(default_factory=list)


def is_large(path: Path, kind: str = "auto") -> bool:
    """True for a trace of torch.profiler whose tables would take hundreds of megabytes."""
    if kind not in ("auto", "kineto") or not path.is_file():
        return False
    if path.stat().st_size * (_PACKED if is_packed(path) else 1) < _LARGE_BYTES:
        return False
    return kind == "kineto" or sniff(path) == "kineto"


def summarise(path: Path, folder: Path | None = None, rows_at_once: int = _ROWS_AT_ONCE) -> LargeTrace:
    """Analyse a trace stretch by stretch.

    Args:
        path: the trace, packed by gzip or not.
        folder: folder to write the tables to as CSV; None writes none.
        rows_at_once: rows of a stretch, at least; it is longer where a step is, or an operator.

    Raises:
        BadFile: see :func:`dnnsuite.importers.kineto.read`.
        OutputError: no space for temporary files, or `folder` cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix="dnnsuite-") as scratch:
        files = {kind: RowFile(Path(scratch, kind), len(names)) for kind, names in COLUMNS.items()}
        into = TraceRows(files)
        collect(path, into)
        notes = [f"{n} {kind} have no times: they are left out" for kind, n in into.untimed.items()]
        rows = {kind: file.count for kind, file in files.items()}
        steps = columns_of("steps", files.pop("steps").all())
        recorded = steps_table(steps) if len(steps["t0_ns"]) else None
        offset = clock_offset_ns(_sampled(files, 1 + max(rows.values()) // COMPARED))
        notes += disagreement(offset)
        gpu = {kind: files[kind] for kind in ("kernels", "memops")}
        windows = _windows(gpu, None) if offset else _windows(files, recorded)
        if not windows:
            return LargeTrace(path, rows, {}, notes + _notes(rows))
        cuts, main = _cuts(files, windows, rows_at_once)
        merged = Merged(windows, main, with_calls=not offset)
        stretches = _stretches(deal(files, cuts), cuts, merged, into.strings)
        with ExitStack() as outputs:
            output = _Output(folder, outputs) if folder is not None else None
            for stretch in stretches:
                merged.add(stretch)
                if output is not None:
                    output.add(stretch.own())
            if output is not None and recorded is not None:
                output.add({"steps": recorded})
        written, definitions = (output.written, output.definitions) if output is not None else ([], {})
        return LargeTrace(path, rows, merged.results(), notes + _notes(rows), definitions, written)


def _sampled(files: Mapping[str, RowFile], every: int) -> dict[str, pd.DataFrame]:
    """Times by which clocks are compared: the first and the last of each kind, and those of one launch in `every`."""
    found = {}
    for kind in ("kernels", "memops", "api"):
        at, parts = COLUMNS[kind].index("correlation"), [np.zeros((0, 3), np.int64)]
        for block in files[kind].blocks():
            chosen = (block[:, at] % every == 0) & (block[:, at] != 0)
            chosen[[block[:, 0].argmin(), block[:, 1].argmax()]] = True
            parts.append(block[chosen][:, [0, 1, at]])
        found[kind] = pd.DataFrame(np.concatenate(parts), columns=["t0_ns", "t1_ns", "correlation"])
    return found


def _notes(rows: Mapping[str, int]) -> list[str]:
    missing = [f"no {name} in the trace" for name in ("kernels", "api") if not rows[name]]
    return [*missing, "a large trace: its tables were not kept; the results cover the whole trace"]


def _windows(files: Mapping[str, RowFile], steps: pd.DataFrame | None) -> Windows:
    """Return the steps, or else from the first begin to the last end of anything; none where nothing lasts."""
    if steps is not None:
        return [*zip(steps["t0_ns"].tolist(), steps["t1_ns"].tolist(), strict=True)]
    extents = [(int(block[:, 0].min()), int(block[:, 1].max())) for file in files.values() for block in file.blocks()]
    begin, end = min((t0 for t0, _ in extents), default=0), max((t1 for _, t1 in extents), default=0)
    return [(begin, end)] if end > begin else []


def _cuts(files: Mapping[str, RowFile], windows: Windows, rows_at_once: int) -> tuple[Times, int]:
    """Times between stretches, and the number of the thread that has most operators in the windows."""
    begins = np.array([begin for begin, _ in windows[1:]], np.int64)
    counts, free, main = _at(files, begins, windows)
    if counts.max(initial=0) > 2 * rows_at_once:
        between = np.linspace(windows[0][0], windows[-1][1], _CANDIDATES).astype(np.int64)
        begins = np.unique(np.concatenate([begins, between]))
        counts, free, main = _at(files, begins, windows)
    before = np.cumsum(counts)[:-1]
    cuts: list[int] = []
    done = 0
    for number in np.flatnonzero(free):
        if before[number] - done >= rows_at_once:
            cuts.append(int(begins[number]))
            done = int(before[number])
    return np.array(cuts, np.int64), main


def _at(files: Mapping[str, RowFile], times: Times, windows: Windows) -> tuple[Times, NDArray[np.bool_], int]:
    """Return (rows that begin before, between and after `times`, True where no operator is open at one, the main
    thread)."""
    counts, opened = np.zeros(len(times) + 1, np.int64), np.zeros(len(times) + 1, np.int64)
    threads: Counter[int] = Counter()
    begins, ends = np.array(windows, np.int64).T
    for kind, file in files.items():
        for block in file.blocks():
            first = np.searchsorted(times, block[:, 0], side="right")
            counts += np.bincount(first, minlength=len(counts))
            if kind != "ops":
                continue
            last = np.searchsorted(times, block[:, 1], side="left")
            over = last > first
            opened += np.bincount(first[over], minlength=len(opened))
            opened -= np.bincount(last[over], minlength=len(opened))
            which = np.searchsorted(begins, block[:, 0], side="right") - 1
            inside = (which >= 0) & (block[:, 0] < ends[which])
            numbers, found = np.unique(block[inside, COLUMNS["ops"].index("thread")], return_counts=True)
            threads.update(dict(zip(numbers.tolist(), found.tolist(), strict=True)))
    main = min(threads, key=lambda thread: (-threads[thread], thread)) if threads else 0
    return counts, np.cumsum(opened)[:-1] == 0, main


def _stretches(dealt: list[dict[str, RowFile]], cuts: Times, merged: Merged, strings: list[str]) -> Iterator[Stretch]:
    """Yield the stretches in turn; each is to be merged before the next."""
    limits = np.iinfo(np.int64)
    edges = [limits.min, *cuts.tolist(), limits.max]
    carried = {kind: np.zeros((0, len(COLUMNS[kind])), np.int64) for kind in (*_CARRIED, "api")}
    for files, begin, end in zip(dealt, edges[:-1], edges[1:], strict=True):
        own = {kind: file.all() for kind, file in files.items()}
        every = {kind: np.concatenate([carried[kind], rows]) if kind in carried else rows for kind, rows in own.items()}
        columns = {kind: columns_of(kind, rows) for kind, rows in every.items()}
        inside = [(max(t0, begin), min(t1, end)) for t0, t1 in merged.windows if t0 < end and t1 > begin]
        yield Stretch(begin, end, inside, tables_of_trace(columns, strings))
        carried = {kind: every[kind][every[kind][:, 1] > end] for kind in _CARRIED}
        calls = every["api"]  # a kernel is launched before it runs, and a gap that is not over is seen whole later
        carried["api"] = calls[(calls[:, 0] >= begin) | (calls[:, 1] > merged.needed_ns)]
        for file in files.values():
            file.remove()


class _Output:
    """CSV files that grow by the rows of one stretch after another."""

    def __init__(self, folder: Path, outputs: ExitStack) -> None:
        self.folder, self._outputs = folder, outputs
        self.written: list[Path] = []
        self.definitions: dict[str, dict[str, str]] = {}
        self._open: dict[str, Path] = {}

    def add(self, tables: Mapping[str, pd.DataFrame]) -> None:
        """Append the rows of tables by name."""
        from ..profiler import definitions

        for name, table in tables.items():
            is_new = name not in self._open
            if is_new:
                self.written.append(self.folder / f"{name}.csv")
                self._open[name] = self._outputs.enter_context(replacing(self.written[-1]))
                self.definitions[name] = definitions(table)
            table.to_csv(self._open[name], mode="w" if is_new else "a", header=is_new, index=False)
