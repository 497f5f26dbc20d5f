# SPDX-License-Identifier: MIT
"""How a benchmark that keeps what it has measured ends."""

import sys
from collections.abc import Callable

from dnnsuite.errors import Error


def run(main: Callable[[], None], pieces: str) -> None:
    """`main()`; an interruption and an error are one line each. `pieces` are what `--out` has of a part of a run."""
    try:
        main()
    except KeyboardInterrupt:
        print(f"interrupted; with --out, the {pieces} that were finished are kept", file=sys.stderr)
        sys.exit(130)
    except Error as error:
        sys.exit(str(error))
