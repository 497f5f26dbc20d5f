# SPDX-License-Identifier: MIT
"""`python -m dnnsuite.workflow NAME ...` is `dnnsuite workflow NAME ...`."""

import sys

from ..cli.entry import dnnsuite

if __name__ == "__main__":
    dnnsuite(["workflow", *sys.argv[1:]])
