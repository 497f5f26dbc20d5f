# SPDX-License-Identifier: MIT
"""Choice of the fastest of a few ways to do the same, by a trial whose answer is kept on this machine."""

from .operators import Way, fastest, seconds
from .table import Answer, Table, key_of, table
from .trial import Trial

__all__ = ["Answer", "Table", "Trial", "Way", "fastest", "key_of", "seconds", "table"]
