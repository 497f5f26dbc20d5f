# SPDX-License-Identifier: MIT
"""`python -m dnnsuite` is `dnnsuite`."""

from .cli.app import main

if __name__ == "__main__":
    main()
