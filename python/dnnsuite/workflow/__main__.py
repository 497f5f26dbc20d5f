# SPDX-License-Identifier: MIT
"""`python -m dnnsuite.workflow NAME ...` is `dnnsuite workflow NAME ...`."""

import sys

from ..cli.app import main

if __name__ == "__main__":
    main(["workflow", *sys.argv[1:]])
