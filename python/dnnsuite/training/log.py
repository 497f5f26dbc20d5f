# SPDX-License-Identifier: MIT
"""The log of a run: SC20's lines in train.log and on the screen, and a bar with the time left on a terminal."""

from __future__ import annotations

import time
from pathlib import Path

from .._files import OutputError
from .._runs.progress import Progress
from ..errors import reason

__all__ = ["LOG_FILE", "Log"]

LOG_FILE = "train.log"


class Log:
    """Lines of one process; only the first process of a run has a folder, and writes. Use as a context manager.

    Args:
        folder: directory of the run; None to write nothing.
        progress: the screen; None for a silent one.
    """

    def __init__(self, folder: Path | None, progress: Progress | None = None) -> None:
        self._progress = progress if folder is not None else None
        self._path = folder / LOG_FILE if folder is not None else None
        self._began_s, self._begun = time.monotonic(), 0

    def __enter__(self) -> Log:
        if self._progress is not None:
            self._progress.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._progress is not None:
            self._progress.__exit__(*exc)

    def info(self, text: str) -> None:
        """Print a line that stays, as SC20's logger writes it.

        Raises:
            OutputError: it cannot be written; the disk is full, say.
        """
        self.plain(f"INFO - {text}")

    def plain(self, line: str) -> None:
        """Print a line that stays, unchanged; raises as :meth:`info`."""
        if self._path is not None:
            try:
                with open(self._path, "a", encoding="utf-8") as file:
                    file.write(f"{line}\n")
            except OSError as error:
                raise OutputError(f"cannot write {self._path}: {reason(error)}") from error
        if self._progress is not None:
            self._progress.line(line)

    def begin(self, name: str, steps: int, done: int) -> None:
        """Begin the loop: `steps` in all, `done` of them before."""
        self._began_s, self._begun = time.monotonic(), done
        if self._progress is not None:
            self._progress.stage(f"training {name}", steps)

    def at(self, step: int, steps: int, text: str) -> None:
        """Show the steps done so far, and the time that the others will take at this rate."""
        if self._progress is None:
            return
        done = step - self._begun
        eta_s = (time.monotonic() - self._began_s) / done * (steps - step) if done else None
        self._progress.at(step, text, eta_s)
