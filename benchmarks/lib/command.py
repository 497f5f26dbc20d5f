# SPDX-License-Identifier: MIT
"""Progress and exit of a benchmark that keeps finished results."""

import sys
from collections.abc import Callable

from dnnsuite.errors import Error


class Progress:
    """A progress line on standard error, written over where that is a terminal."""

    def __init__(self) -> None:
        self.where = ""
        self._over = sys.stderr.isatty()

    def __call__(self, text: str) -> None:
        begin, end = ("\r\x1b[K", "") if self._over else ("", "\n")
        print(f"{begin}{self.where}: {text}", end=end, file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._over:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def run(main: Callable[[], None], pieces: str) -> None:
    """`main()`; an interruption and an error are one line each. `pieces` are what `--out` has of a part of a run."""
    try:
        main()
    except KeyboardInterrupt:
        print(
            f"interrupted; where they are written to a file, the {pieces} that were finished are kept", file=sys.stderr
        )
        sys.exit(130)
    except Error as error:
        sys.exit(str(error))
