# SPDX-License-Identifier: MIT
"""Runs as one tidy table, and statistics of it. Reads only the files of runs.

`load` takes any mixture of directories; `summarize` and `wide` reduce its table, and pool only runs that are alike.
"""

from .batch_sizes import by_batch_size as by_batch_size
from .batch_sizes import knee as knee
from .comparison import Compared as Compared
from .comparison import compare as compare
from .gains import gains as gains
from .gains import gains_markdown as gains_markdown
from .hfta_tree import save_hfta_tree as save_hfta_tree
from .loading import load as load
from .machine_load import load_monitors as load_monitors
from .machine_load import summarize_monitors as summarize_monitors
from .monitor import read_monitor as read_monitor
from .pool import Reason as Reason
from .pool import UnlikeRuns as UnlikeRuns
from .pool import conditions as conditions
from .pool import reasons as reasons
from .pool import refuse_unlike as refuse_unlike
from .samples import steps as steps
from .scaling import weak_scaling as weak_scaling
from .styled import styled as styled
from .summary import BASELINE as BASELINE
from .summary import by_mode as by_mode
from .summary import summarize as summarize
from .summary import wide as wide
from .table import COLUMNS as COLUMNS
from .table import SEPARATOR as SEPARATOR
from .table import complete as complete
from .table import save_csv as save_csv

__all__ = [
    "BASELINE", "COLUMNS", "SEPARATOR", "Compared", "Reason", "UnlikeRuns", "by_batch_size", "by_mode",
    "compare", "complete", "conditions", "gains", "gains_markdown", "knee", "load", "load_monitors",
    "read_monitor", "reasons", "refuse_unlike", "save_csv", "save_hfta_tree", "steps", "styled",
    "summarize", "summarize_monitors", "weak_scaling", "wide",
]  # fmt: skip
