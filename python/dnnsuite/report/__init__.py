# SPDX-License-Identifier: MIT
"""Reports on runs, a pure function of their directories."""

from ..results.pool import UnlikeRuns as UnlikeRuns
from ._entries import FAILURES as FAILURES
from ._entries import ReportEntry as ReportEntry
from ._html import html as html
from ._pdf import print_pdf as print_pdf
from ._report import Report as Report
from ._report import SuiteReport as SuiteReport
from ._report import make as make
from ._report import read as read
from ._text import markdown as markdown
from ._text import style_score as style_score
from ._text import style_seed as style_seed
from ._text import text as text
from .comparison import FailOn as FailOn
from .comparison import comparison_markdown as comparison_markdown
from .comparison import comparison_text as comparison_text
from .comparison import fail_on as fail_on

__all__ = [
    "FAILURES", "FailOn", "Report", "ReportEntry", "SuiteReport", "UnlikeRuns", "comparison_markdown",
    "comparison_text", "fail_on", "html", "make", "markdown", "print_pdf", "read", "style_score",
    "style_seed", "text",
]  # fmt: skip
