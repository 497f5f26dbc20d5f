# SPDX-License-Identifier: MIT
"""Reports on runs of the suite: a pure function of what lies in their directories."""

from ._entries import FAILURES as FAILURES
from ._entries import Entry as Entry
from ._html import html as html
from ._read import read as read
from ._report import Report as Report
from ._report import make as make
from ._text import markdown as markdown
from ._text import style_score as style_score
from ._text import style_seed as style_seed
from ._text import text as text
from ._unlike import UnlikeRuns as UnlikeRuns

__all__ = [
    "FAILURES", "Entry", "Report", "UnlikeRuns", "html", "make", "markdown", "read", "style_score", "style_seed",
    "text",
]  # fmt: skip
