# SPDX-License-Identifier: MIT
"""`load`: recognise a tool's file by its content, and hand it to the reader of its kind."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .._lazy import pandas as pd
from ..errors import check_choice
from . import dcgm, kineto, ncu, nsys, nsys_stats, nvprof, nvvp
from ._extent import remarks
from ._text import BadFile, encoding_of, lines_of, read_bytes

KINDS = ("ncu", "nvprof", "nvvp", "nsys", "nsys-stats", "dcgm", "kineto")
TRACES = ("nsys", "nvvp", "kineto")  # of these: kernels, copies, calls, with times
_ALONE = {"ncu": "metrics", "dcgm": "samples"}  # those that have one table
_JSON = re.compile(r"\s*(?:\{|\[\s*(?:\{|\]|$))")
_SQLITE = b"SQLite format 3\0"
_EXPORT = {  # a tool's own format: how to make it one that is read
    ".ncu-rep": "ncu --import FILE --csv --page raw > report.csv",
    ".nsys-rep": "nsys export --type sqlite FILE",
    ".qdrep": "nsys export --type sqlite FILE",
}


# What else is met, and the way to a file that is read
_OTHERS = (
    (r"\Aversion https://git-lfs", "a pointer of Git LFS, not the file: `git lfs pull --include FILE` fetches it"),
    (
        r"(?i)\A\s*<\?xml[^>]*>\s*<(com\.nvidia|nvvp|session|org\.eclipse)",
        "a session of the visual profiler, which only names files: import the file of `nvprof -o` that it names, or "
        "save it anew by `nvprof -o FILE.nvprof ./program`",
    ),
)
# What is recognised by no header that is read: tables for people, and other tools
_FOR_PEOPLE = (
    (
        r"Time \(?%\)?\s+Total Time|cuda_gpu_kern_sum|Executing '\w+_sum' stats report|CUDA API Statistics",
        "the tables of `nsys stats` for people: `nsys stats --format csv --output FILE REPORT` writes what is read, "
        "`nsys export --type sqlite REPORT` all of it",
    ),
    (
        r"(?m)==PROF== |^\s*Section: GPU Speed Of Light|^\s+Metric Name\s+Metric Unit\s+Metric Value",
        "what ncu prints for people: `ncu --import REPORT --csv --page raw > FILE.csv` writes what is read",
    ),
    (
        r"(?m)utilization\.gpu|memory\.used \[|^\| NVIDIA-SMI",
        "of nvidia-smi, whose samples are not read: `dcgmi dmon -e 203,1002,1004,155 > FILE` writes what is, and "
        "`dnnsuite profile --metrics power` takes them itself",
    ),
    (
        r"(?m)TotalDurationNs|^\"?Index\"?,\"?KernelName|Kernel_Name\"?,|BeginNs",
        "of rocprof, whose tables are not read: torch.profiler's trace is (`prof.export_chrome_trace`), also of AMD's",
    ),
)


@dataclass(frozen=True)
class Imported:
    """Content of a file.

    Attributes:
        kind: the tool that wrote it, as in `dnnsuite import --kind`.
        path: the file.
        tables: tables by name; their columns are defined in `table.attrs["definitions"]`.
        notes: remarks for the reader, as sentences.
    """

    kind: str
    path: Path
    tables: dict[str, pd.DataFrame]
    notes: list[str] = field(default_factory=list)

    @property
    def windows(self) -> list[tuple[int, int]]:
        """(begin, end) in ns that a trace covers; empty for a file that is no trace."""
        tables: Iterable[pd.DataFrame] = self.tables.values()
        found: list[list[int]] = next((table.attrs["windows"] for table in tables if "windows" in table.attrs), [])
        return [(begin, end) for begin, end in found]


def sniff(path: str | Path) -> str:
    """Return the kind of a file, of :data:`KINDS`, by its content.

    Raises:
        BadFile: none of them, or it cannot be read; a tool's own format names the command that exports it.
    """
    path = Path(path)
    if path.suffix in _EXPORT and path.is_file():
        raise BadFile(
            path, f"the tool's own format; export it first: {_EXPORT[path.suffix].replace('FILE', path.name)}"
        )
    head = read_bytes(path, 1 << 20)
    if head.startswith(_SQLITE):
        return _kind_of_database(path)
    text = head.decode(encoding_of(head), errors="replace")
    for pattern, what in _OTHERS:
        if re.search(pattern, text):
            raise BadFile(path, what.replace("FILE", path.name), kind_is_known=False)
    if _JSON.match(text):
        if "traceEvents" in text or '"ph"' in text:
            return "kineto"
        raise BadFile(path, "JSON that is not a trace of torch.profiler", kind_is_known=False)
    kind = _kind_of_lines(lines_of(head)) or _kind_of_lines(lines_of(read_bytes(path)))
    if kind:
        return kind
    for pattern, what in _FOR_PEOPLE:
        if re.search(pattern, text):
            raise BadFile(path, what.replace("FILE", path.name), kind_is_known=False)
    raise BadFile(
        path,
        f"no header of any of {', '.join(KINDS)} is in it; --kind reads it as one of them and says what is missing",
        kind_is_known=False,
    )


def _kind_of_database(path: Path) -> str:
    for kind, is_one in (("nvvp", nvvp.is_nvvp), ("nsys", nsys.is_nsys)):
        if is_one(path):
            return kind
    raise BadFile(path, "an SQLite file without tables of nsys or nvvp", kind_is_known=False)


def _kind_of_lines(lines: Iterable[str]) -> str | None:
    kinds = (
        ("ncu", ncu.is_header),
        ("dcgm", dcgm.is_dcgm),
        ("nsys-stats", nsys_stats.is_header),
        ("nvprof", nvprof.is_header),
    )
    for line in lines:
        for kind, is_one in kinds:
            if is_one(line):
                return kind
    return None


def load(path: str | Path, kind: str = "auto", interval_s: float = 1.0) -> Imported:
    """Read a file's tables.

    Args:
        path: the file.
        kind: one of :data:`KINDS`, or "auto": :func:`sniff`.
        interval_s: seconds between samples of DCGM, if the file has no times.

    Returns:
        ncu: `metrics`; nvprof and nsys-stats: `launches`, `metrics`, `api`, `unified`; dcgm: `samples`; nsys, nvvp
        and kineto: the tables of :class:`dnnsuite.profiler.activity.ActivityInstrument`.

    Raises:
        BadFile: damaged, or of another kind.
        InvalidArgument: an unknown kind.
    """
    path = Path(path)
    check_choice("kind", kind, ("auto", *KINDS))
    if kind == "auto":
        kind = sniff(path)
    read: Any = {"ncu": ncu, "nvprof": nvprof, "nvvp": nvvp, "nsys": nsys, "nsys-stats": nsys_stats, "kineto": kineto}
    found: Any = dcgm.read(path, interval_s) if kind == "dcgm" else read[kind].read(path)
    tables: dict[str, pd.DataFrame] = {_ALONE[kind]: found} if kind in _ALONE else found
    notes = []
    if kind in TRACES:
        notes = [f"no {name} in the trace" for name in ("kernels", "api") if not len(tables[name])] + remarks(tables)
    for name, table in tables.items():
        if "value" in table and (missing := _not_measured(table)):
            notes.append(f"{missing} values of table {name} were not measured (NaN)")
    return Imported(kind, path, tables, notes)


def _not_measured(table: pd.DataFrame) -> int:
    """Number of missing values; a word in place of a number is not missing."""
    empty = table["value"].isna()
    return int((empty & table["text"].isna()).sum() if "text" in table else empty.sum())
