# SPDX-License-Identifier: MIT
"""Reports on runs, made only from the files in their directories."""

from ..results.pool import UnlikeRuns
from ._entries import FAILURES, ReportEntry
from ._html import html, print_pdf
from ._report import Report, SuiteReport, make, plain, read
from ._summary import Costs
from ._text import markdown, style_score, style_seed, text
from .comparison import FailOn, Machines, comparison_markdown, comparison_text, costs_of_two, fail_on, machines

__all__ = [
    "FAILURES", "Costs", "FailOn", "Machines", "Report", "ReportEntry", "SuiteReport", "UnlikeRuns",
    "comparison_markdown", "comparison_text", "costs_of_two", "fail_on", "html", "machines", "make", "markdown",
    "plain", "print_pdf", "read", "style_score", "style_seed", "text",
]  # fmt: skip
