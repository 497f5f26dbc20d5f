# SPDX-License-Identifier: MIT
"""What works on this machine, and what each missing thing needs: `dnnsuite doctor`."""

from ._report import Check as Check
from ._report import exit_code as exit_code
from ._report import render as render
from ._report import report as report
from ._report import to_dict as to_dict
