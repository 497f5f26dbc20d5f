# SPDX-License-Identifier: MIT
"""Progress of a plan: a live display with the time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

from .words import printable

Key = TypeVar("Key", bound=Hashable)

_REFRESH_S = 0.5


class Durations(Generic[Key]):
    """Durations of finished runs, and a forecast of the others from them: of a key without one, the mean of all."""

    def __init__(self) -> None:
        self._seen: dict[Key, list[float]] = {}

    def add(self, key: Key, seconds: float) -> None:
        """Take in a run that has ended."""
        self._seen.setdefault(key, []).append(seconds)

    def expect_s(self, keys: Iterable[Key]) -> float | None:
        """Forecast the seconds for all of `keys`, one after another; None before anything was seen."""
        keys = list(keys)
        if not self._seen:
            return None if keys else 0.0
        means = {key: fmean(all_s) for key, all_s in self._seen.items()}
        return sum(means[key] if key in means else fmean(means.values()) for key in keys)


class Progress:
    """Context manager: display of a plan's progress.

    On a terminal: a table of the plan's jobs if :meth:`rows` was called, and below it a line with a bar, what runs now
    and the time left. Elsewhere, as in a log file, one line for each run that ended, with the time left. A screen that
    is gone, as a pipe that nobody reads or a log on a full disk, ends no run: nothing more is shown.

    Args:
        console: console to print on; standard error by default.
        quiet: print nothing.
    """

    def __init__(self, console: Console | None = None, quiet: bool = False) -> None:
        if console is None:
            from rich.console import Console as RichConsole

            console = RichConsole(stderr=True)
        self._console, self._quiet = console, quiet
        self._on_terminal = console.is_terminal and not quiet
        self._live: Live | None = None
        self._text, self._done, self._total = "", 0, 0
        self._eta_at_s: float | None = None
        self._began_s = self._drawn_s = time.monotonic()
        self._columns: Sequence[str] = ()
        self._rows: dict[str, Mapping[str, str]] = {}

    def __enter__(self) -> Progress:
        if self._on_terminal:
            from rich.live import Live

            self._live = Live(console=self._console, auto_refresh=False)
            self._show(self._live.start)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            if not self._rows:
                self._text, self._total = "", 0
            self._draw()
        if self._live is not None:
            self._show(self._live.stop)
            self._live = None

    def _show(self, show: Callable[[], object]) -> None:
        try:
            show()
        except (OSError, ValueError, SystemExit):  # rich ends the process where a pipe is not read
            self._quiet, self._live = True, None

    def rows(self, columns: Sequence[str], names: Iterable[str]) -> None:
        """Show a table with these columns and a row for each name, which is its first cell."""
        self._columns, self._rows = columns, {name: {} for name in names}

    def row(self, name: str, **cells: str) -> None:
        """Change cells of a row."""
        self._rows[name] = {**self._rows[name], **cells}
        self.tick()

    def stage(self, text: str, total: int = 0) -> None:
        """Begin a stage of `total` runs."""
        self._text, self._done, self._total, self._eta_at_s = text, 0, total, None
        self._began_s = time.monotonic()
        if self._live is None or self._rows:
            self.line(text)
        self._draw()

    def now(self, text: str, eta_s: float | None) -> None:
        """Show what runs now, and the seconds left in the stage."""
        self._text = text
        self._eta_at_s = None if eta_s is None else time.monotonic() + eta_s
        self._draw()

    def at(self, done: int, text: str, eta_s: float | None) -> None:
        """Show how much of the stage is done, in its own unit; on a terminal only, and redrawn twice a second."""
        self._done, self._text = done, text
        self._eta_at_s = None if eta_s is None else time.monotonic() + eta_s
        self.tick()

    def tick(self) -> None:
        """Draw the time again while something runs."""
        if time.monotonic() - self._drawn_s >= _REFRESH_S:
            self._draw()

    def done(self, text: str, eta_s: float | None = None) -> None:
        """Count a run of the stage that has ended; `eta_s` seconds are left."""
        self._done += 1
        self._eta_at_s = None if eta_s is None else time.monotonic() + eta_s
        eta = self._eta_text()
        self.line(f"{text}  {eta}" if eta and not self._on_terminal and self._done < self._total else text)
        self._draw()

    def line(self, text: str) -> None:
        """Print a line that stays."""
        if not self._quiet:
            shown = printable(text)
            self._show(lambda: self._console.print(shown, markup=False, highlight=False, soft_wrap=True))

    def _eta_text(self) -> str:
        if self._eta_at_s is None:
            return ""
        return f"ETA {clock_text(max(0.0, self._eta_at_s - time.monotonic()))}"

    def _draw(self) -> None:
        self._drawn_s = time.monotonic()
        if (live := self._live) is not None:
            self._show(lambda: live.update(self._picture(), refresh=True))

    def _picture(self) -> Group:
        from rich.console import Group, RenderableType
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        parts: list[RenderableType] = []
        if self._rows:
            table = Table(*self._columns, box=None, pad_edge=False)
            for name, cells in self._rows.items():
                shown = (cells.get(column, "") for column in self._columns[1:])
                table.add_row(*map(_plain, (name, *shown)))
            parts.append(table)
        line = Table.grid(padding=(0, 1))
        words: list[RenderableType] = [
            _plain(self._text),
            clock_text(time.monotonic() - self._began_s),
            self._eta_text(),
        ]
        if self._total:
            bar = ProgressBar(self._total, self._done, width=24)
            line.add_row(bar, f"{self._done}/{self._total}", *words)
        elif self._text:
            line.add_row(*words)
        parts.append(line if self._total or self._text else Text(""))
        return Group(*parts)


def clock_text(seconds: float) -> str:
    """Write seconds as a clock does: 75 as "1:15", 3700 as "1:01:40"."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


def _plain(text: str) -> Text:
    """Show a program's text literally, without markup or colours."""
    from rich.text import Text

    return Text(printable(text))
