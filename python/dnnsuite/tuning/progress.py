# SPDX-License-Identifier: MIT
"""Progress of a sweep: the best trials, a count of each status and the time left, on a terminal and in a notebook.

In a log file it is a line at intervals.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from html import escape
from typing import TYPE_CHECKING, Any

from .._runs import progress as runs
from .._shown import metric, setting, table_html
from .algorithms import Plan

if TYPE_CHECKING:
    from rich.console import Console

    from .callbacks import Event
    from .engine import Engine

_LINE_EVERY_S = 30.0  # in a log file
_ROWS = 5


class Progress:
    """Display of a sweep. Use it as a context manager.

    Args:
        console: standard error by default, and the output of the cell in a notebook.
        quiet: show nothing.
    """

    def __init__(self, console: Console | None = None, quiet: bool = False) -> None:
        self._live = LiveTable() if console is None and not quiet and in_notebook() else None
        if console is None:
            from rich.console import Console as RichConsole

            console = RichConsole(stderr=True)
        self.plan: Plan | None = None  # its size, once it is known
        self._shown = runs.Progress(console, quiet or self._live is not None)
        self._on_terminal = console.is_terminal and not quiet and self._live is None
        self._began_s = self._told_s = time.monotonic()
        self._trained = 0

    def __enter__(self) -> Progress:
        self._shown.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._shown.__exit__(*exc)

    def tell(self, event: Event, engine: Engine) -> None:
        """Show an epoch or an end."""
        if event.kind == "epoch":
            if self._on_terminal and not self._trained:
                self._shown.stage("sweep", self.plan.epochs if self.plan else 0)
            self._trained += 1
        now_s = time.monotonic()
        if now_s - self._told_s < 0.5:
            return
        if self._on_terminal or self._live is not None:
            self._told_s = now_s
            self._draw(engine)
        elif now_s - self._told_s >= _LINE_EVERY_S:
            self._shown.line(self._line(engine))
            self._told_s = now_s

    def _line(self, engine: Engine) -> str:
        counts = Counter(trial.status for trial in engine.trials.values())
        shown = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
        eta_s = self._eta_s()
        eta = "" if eta_s is None else f"; ETA {runs.clock_text(eta_s)}"
        return f"{shown}; best {_best_text(engine)}{eta}"

    def _eta_s(self) -> float | None:
        if self.plan is None or not self._trained:
            return None
        per_epoch_s = (time.monotonic() - self._began_s) / self._trained
        return max(0.0, per_epoch_s * (self.plan.epochs - self._trained))

    def _draw(self, engine: Engine) -> None:
        columns, rows = _table(engine)
        if self._live is not None:
            self._live.show(table_html(columns, rows, self._line(engine)))
            return
        self._shown.rows(columns, [row[0] for row in rows])
        for row in rows:
            self._shown.row(row[0], **dict(zip(columns[1:], row[1:], strict=True)))
        self._shown.at(self._trained, self._line(engine), self._eta_s())

    def say(self, line: str) -> None:
        """Print a line beside the progress."""
        self._shown.line(line)

    def end(self, line: str) -> None:
        """Print the last line: how the sweep ended."""
        if self._live is not None:
            self._live.show(f"<p>{escape(line)}</p>")
        self._shown.line(line)


def _table(engine: Engine) -> tuple[list[str], list[list[str]]]:
    """Return (columns, a row for each of the best trials)."""
    best = sorted(engine.trials.values(), key=lambda trial: (trial.best[0], trial.number))[:_ROWS]
    columns = ["trial", engine.metric or "value", "epochs", "status", "configuration"]
    return columns, [
        [
            str(trial.number),
            metric(engine.goal.sign * trial.best[0]) if trial.best[1] else "",
            str(trial.epoch),
            trial.status,
            ", ".join(f"{name}={setting(value)}" for name, value in trial.best_config.items()),
        ]
        for trial in best
    ]


def _best_text(engine: Engine) -> str:
    value, trial, _ = engine.best.key
    return "none yet" if trial < 0 else f"{engine.metric} {metric(engine.goal.sign * value)} (trial {trial})"


def in_notebook() -> bool:
    """True in a Jupyter kernel; a shell of IPython is a terminal."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class LiveTable:
    """Piece of HTML in a cell's output, replaced as it changes."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, html: str) -> None:
        """Show `html` where the last one was."""
        from IPython.display import HTML, display  # type: ignore[import-not-found,unused-ignore]

        if self._handle is None:
            self._handle = display(HTML(html), display_id=True)
        else:
            self._handle.update(HTML(html))
