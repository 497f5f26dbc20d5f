# SPDX-License-Identifier: MIT
"""`python -m dnnsuite` is `dnnsuite`."""

from .cli.entry import dnnsuite

if __name__ == "__main__":
    dnnsuite()
