# SPDX-License-Identifier: MIT
"""Reports on runs: a pure function of what lies in their directories."""

from ..results.pool import UnlikeRuns as UnlikeRuns
from ._entries import FAILURES as FAILURES
from ._entries import ReportEntry as ReportEntry
from ._html import html as html
from ._report import Report as Report
from ._report import SuiteReport as SuiteReport
from ._report import make as make
from ._report import read as read
from ._text import markdown as markdown
from ._text import style_score as style_score
from ._text import style_seed as style_seed
from ._text import text as text

__all__ = [
    "FAILURES",
    "Report",
    "ReportEntry",
    "SuiteReport",
    "UnlikeRuns",
    "html",
    "make",
    "markdown",
    "read",
    "style_score",
    "style_seed",
    "text",
]
