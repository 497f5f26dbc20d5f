# SPDX-License-Identifier: MIT
"""How far a suite is: a live table with the time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._files import read_tail

if TYPE_CHECKING:
    from rich.console import Console, Group

    from ._suite import Suite

__all__ = ["Durations", "Screen", "rate_text"]

_REFRESH_S = 0.5


class Durations:
    """How long jobs have taken, and from that how long others will."""

    def __init__(self) -> None:
        self._seen: dict[str, list[float]] = {}

    def add(self, key: str, seconds: float) -> None:
        self._seen.setdefault(key, []).append(seconds)

    def expect_s(self, keys: Sequence[str]) -> float | None:
        """Seconds for these jobs, one after another; one not seen yet counts as the mean of the others."""
        if not self._seen:
            return None
        means = {key: sum(all_s) / len(all_s) for key, all_s in self._seen.items()}
        other = sum(means.values()) / len(means)
        return sum(means.get(key, other) for key in keys)


class Screen:
    """Tells a person how far a suite is. Use as a context manager."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self._console, self._quiet = console, quiet
        self._live_on = console.is_terminal and not quiet
        self._live: Any = None
        self._durations = Durations()
        self._left: list[tuple[str, int]] = []
        self._rows: dict[str, dict[str, str]] = {}
        self._now: tuple[str, int] | None = None
        self._directories: Sequence[Path] = ()
        self._began_s = self._drawn_s = time.monotonic()
        self._repeats = 1

    def __enter__(self) -> Screen:
        if self._live_on:
            from rich.live import Live

            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._draw()
            self._live.stop()
            self._live = None

    def begin(self, suite: Suite, repeats: int, total: int, left: Sequence[tuple[str, int]]) -> None:
        """The jobs of the suite, and those that are still to be run, with their run."""
        self._left, self._repeats = list(left), repeats
        self._rows = {entry.key: {"state": "", "rate": "", "seconds": ""} for entry in suite.entries}
        jobs = f"{len(suite.entries)} job{'s' * (len(suite.entries) > 1)}"
        again = f" {repeats} times" if repeats > 1 else ""
        self.line(f"{suite.name}: {jobs}{again}, {len(left)} of {total} to run")

    def start(self, key: str, repeat: int) -> None:
        """A job begins."""
        self._now, self._directories, self._began_s = (key, repeat), (), time.monotonic()
        self._rows[key]["state"] = "runs"
        self._draw()

    def watch(self, directories: Sequence[Path]) -> None:
        """Where the copies of the job that runs write."""
        self._directories = directories

    def tick(self) -> None:
        """Something still runs."""
        if self._live is not None and time.monotonic() - self._drawn_s >= _REFRESH_S:
            if self._now:
                self._rows[self._now[0]]["state"] = self._heard() or "sets up"
            self._draw()

    def _heard(self) -> str:
        """The last ETA line of the first copy."""
        for directory in self._directories[:1]:
            for line in reversed(read_tail(directory / "stdout.txt", 400).splitlines()):
                if line.startswith("[") and "ETA:" in line:
                    return line.rpartition(" | ")[0]
        return ""

    def done(
        self, key: str, repeat: int, runs: Sequence[Mapping[str, Any]], line: str, seconds: float
    ) -> None:
        """A job has ended."""
        self._durations.add(key, seconds)
        self._left = [each for each in self._left if each != (key, repeat)]
        bad = [run for run in runs if run["status"] != "ok"]
        self._rows[key] = {
            "state": ", ".join(sorted({run["failure"] for run in bad})) or "passed",
            "rate": rate_text(runs), "seconds": f"{seconds:.0f}",
        }  # fmt: skip
        self._now = None
        rate = rate_text(runs)
        self.line(f"{line} | {rate}" if rate else line)
        for run in bad:
            self.line(f"        {run['key']} copy {run['slot']}: {run['failure']}: {run['message']}")
        if flags := dict.fromkeys(flag for run in runs for flag in run["flags"]):
            self.line(f"        {key}: {', '.join(flags)}")

    def line(self, text: str) -> None:
        """A line that stays."""
        if not self._quiet:
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _draw(self) -> None:
        if self._live is not None:
            self._drawn_s = time.monotonic()
            self._live.update(self._table(), refresh=True)

    def _table(self) -> Group:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False)
        for name in ("job", "state", "rate", "s"):
            table.add_column(name, justify="right" if name == "s" else "left")
        for key, row in self._rows.items():
            table.add_row(key, row["state"], row["rate"], row["seconds"])
        return Group(table, Text(self._caption()))

    def _caption(self) -> str:
        if not self._left:
            return "all jobs have run"
        run = f"run {self._left[0][1] + 1} of {self._repeats}, " if self._repeats > 1 else ""
        expected = self._durations.expect_s([key for key, _ in self._left])
        spent_s = time.monotonic() - self._began_s if self._now else 0.0
        left = "" if expected is None else f", ETA {max(0.0, expected - spent_s) / 60:.1f} min"
        return f"{run}{len(self._left)} to run{left}"


def rate_text(runs: Sequence[Mapping[str, Any]]) -> str:
    """The mean rate of the copies that ended well, and how many they are."""
    rates = [run["rate_per_s"] for run in runs if run["status"] == "ok"]
    if not rates:
        return ""
    unit = next(run["unit"] for run in runs if run["status"] == "ok")
    times = f"{len(rates)} × " if len(rates) > 1 else ""
    return f"{times}{sum(rates) / len(rates):.5g} {unit}/s"
