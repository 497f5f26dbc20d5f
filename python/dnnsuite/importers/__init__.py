# SPDX-License-Identifier: MIT
"""Files of other tools as this package's tables: ncu, nvprof and nvvp, nsys, DCGM, torch.profiler.

>>> from dnnsuite import importers
>>> trace = importers.load("report.sqlite")                                    # doctest: +SKIP
>>> activity.analyse(trace.tables, trace.windows)["gpu"]                       # doctest: +SKIP

A file that is damaged raises :class:`BadFile`, which names file and line; nothing is read in part. For traces of
gigabytes, :func:`dnnsuite.importers.large.summarise` computes the results without the tables, in bounded memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy
from ._text import BadFile

if TYPE_CHECKING:
    from ._loading import KINDS, TRACES, Imported, load, sniff
    from .cores import core_report
    from .fp32 import fp32_report
    from .traces import Ranks, analyse_trace, by_name, compare_traces, merge_ranks

__all__ = [
    "KINDS", "TRACES", "BadFile", "Imported", "Ranks", "analyse_trace", "by_name", "compare_traces", "core_report",
    "fp32_report", "load", "merge_ranks", "sniff",
]  # fmt: skip

__getattr__, __dir__ = lazy(
    __name__,
    {
        "._loading": "KINDS TRACES Imported load sniff",
        ".cores": "core_report",
        ".fp32": "fp32_report",
        ".traces": "Ranks analyse_trace by_name compare_traces merge_ranks",
    },
    ("cores", "dcgm", "fp32", "kineto", "large", "ncu", "nsys", "nsys_stats", "nvprof", "nvvp"),
)
