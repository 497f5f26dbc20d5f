# SPDX-License-Identifier: MIT
"""Runs as one tidy table, and statistics of it. Only the files of runs are read.

`load` accepts any mixture of directories. `summarize` and `wide` reduce its table, and pool only comparable runs.
"""

from .batch_sizes import by_batch_size, gains, gains_markdown, knee, weak_scaling
from .comparison import Compared, compare
from .hfta_tables import save_hfta_tree
from .loading import load
from .monitor import load_monitors, read_monitor, steps, summarize_monitors
from .pool import Reason, UnlikeRuns, conditions, reasons, refuse_unlike, without_odd
from .summary import BASELINE, by_mode, summarize, wide
from .table import COLUMNS, SEPARATOR, complete, save_csv, styled

__all__ = [
    "BASELINE", "COLUMNS", "SEPARATOR", "Compared", "Reason", "UnlikeRuns", "by_batch_size", "by_mode", "compare",
    "complete", "conditions", "gains", "gains_markdown", "knee", "load", "load_monitors", "read_monitor", "reasons",
    "refuse_unlike", "save_csv", "save_hfta_tree", "steps", "styled", "summarize", "summarize_monitors",
    "weak_scaling", "wide", "without_odd",
]  # fmt: skip
