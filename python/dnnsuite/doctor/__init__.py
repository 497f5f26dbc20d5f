# SPDX-License-Identifier: MIT
"""Checks of this machine, and the remedy for each missing thing: `dnnsuite doctor`."""

from ._report import Check as Check
from ._report import exit_code as exit_code
from ._report import render as render
from ._report import report as report
from ._report import to_dict as to_dict
