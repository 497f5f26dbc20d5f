# SPDX-License-Identifier: MIT
"""Files of other tools as this package's tables: ncu, nvprof and nvvp, nsys, DCGM, torch.profiler.

>>> from dnnsuite import importers
>>> trace = importers.load("report.sqlite")                                    # doctest: +SKIP
>>> activity.analyse(trace.tables, trace.windows)["gpu"]                       # doctest: +SKIP

A file that is damaged raises :class:`BadFile`, which names file and line; nothing is read in part. Traces of gigabytes:
:func:`dnnsuite.importers.large.summarise` has their results without their tables, in bounded memory.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

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

_HOME_OF = {
    "KINDS": "._loading",
    "TRACES": "._loading",
    "Imported": "._loading",
    "load": "._loading",
    "sniff": "._loading",
    "core_report": ".cores",
    "fp32_report": ".fp32",
    "Ranks": ".traces",
    "analyse_trace": ".traces",
    "by_name": ".traces",
    "compare_traces": ".traces",
    "merge_ranks": ".traces",
}
_MODULES = ("cores", "dcgm", "fp32", "kineto", "large", "ncu", "nsys", "nsys_stats", "nvprof", "nvvp")


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        value = getattr(importlib.import_module(_HOME_OF[name], __name__), name)
    elif name in _MODULES:
        value = importlib.import_module(f".{name}", __name__)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
