# SPDX-License-Identifier: MIT
"""Progress of a suite: a row for each job, its rate, and its failures."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .._files import read_tail
from .._runs.progress import Durations, Progress
from .._runs.record import MISSED, RunRecord, quality_text
from .._shown import rate as shown_rate
from ._records import rate_of

if TYPE_CHECKING:
    from ._suite import Suite


class Screen:
    """Display of how far a suite is, on a :class:`Progress` that is open."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._durations: Durations[str] = Durations()
        self._left: list[tuple[str, int]] = []
        self._now: tuple[str, int] | None = None
        self._directories: Sequence[Path] = ()
        self._heard_s = 0.0
        self._repeats = self._total = 1

    def begin(self, suite: Suite, repeats: int, total: int, left: Sequence[tuple[str, int]]) -> None:
        """Show the jobs of the suite, and those that are still to be run, with their run."""
        self._left, self._repeats, self._total = list(left), repeats, total
        self._progress.rows(("job", "state", "rate", "s"), [entry.key for entry in suite.entries])
        jobs = f"{len(suite.entries)} job{'s' * (len(suite.entries) > 1)}"
        again = f" {repeats} times" if repeats > 1 else ""
        self._progress.stage(f"{suite.name}: {jobs}{again}, {len(left)} of {total} to run", len(left))

    def isolation(self, level: str, reasons: Sequence[str]) -> None:
        """Say that the copies are kept apart less well than by control groups, and why."""
        if level != "cgroup":
            why = f" ({'; '.join(reasons)})" if reasons else ""
            self._progress.line(f"copies are kept apart by: {level}{why}")

    def start(self, key: str, repeat: int) -> None:
        """Show that a job begins."""
        self._now, self._directories = (key, repeat), ()
        self._progress.row(key, state="runs")
        run = f"run {repeat + 1} of {self._repeats}, " if self._repeats > 1 else ""
        self._progress.now(f"{run}{len(self._left)} to run", self._eta_s())

    def watch(self, directories: Sequence[Path]) -> None:
        """Follow the current job: its copies write to `directories`."""
        self._directories = directories

    def tick(self) -> None:
        """Draw the time again while something runs."""
        now_s = time.monotonic()
        if self._now is not None and now_s - self._heard_s >= 0.5:
            self._heard_s = now_s
            self._progress.row(self._now[0], state=self._heard() or "sets up")
        self._progress.tick()

    def _heard(self) -> str:
        """Return how far the first copy is, by its last line."""
        for directory in self._directories[:1]:
            for line in reversed(read_tail(directory / "stdout.txt", 400).splitlines()):
                if line.startswith("[") and "ETA:" in line:
                    return "step " + " of ".join(line[1:].partition("]")[0].replace(" ", "").split("/"))
        return ""

    def done(self, key: str, repeat: int, runs: Sequence[RunRecord], seconds: float) -> None:
        """Show that a job has ended."""
        self._durations.add(key, seconds)
        self._left = [each for each in self._left if each != (key, repeat)]
        self._now = None
        bad = [run for run in runs if not run.ok]
        state = ", ".join(sorted({run.verdict.failure or "crash" for run in bad})) or "passed"
        rate = rate_text(runs)
        self._progress.row(key, state=state, rate=rate, s=f"{seconds:.0f}")
        shown = f"[{self._total - len(self._left)}/{self._total}] {key}: {state} in {seconds:.0f} s"
        self._progress.done(f"{shown}, {rate}" if rate else shown, self._eta_s())
        for text in filter(None, map(quality_text, runs)):
            self.line(f"        {text}")
        for run in bad:
            which = f"{run.details['key']} copy {run.details['slot']}"
            self.line(f"        {which}: {run.verdict.failure}: {run.verdict.message}")
        if flags := dict.fromkeys(flag for run in runs for flag in run.disturbances if flag != MISSED):
            self.line(f"        {key}: {', '.join(flags)}")

    def line(self, text: str) -> None:
        """Print a line that stays."""
        self._progress.line(text)

    def _eta_s(self) -> float | None:
        return self._durations.expect_s(key for key, _ in self._left)


def rate_text(runs: Sequence[RunRecord]) -> str:
    """Format the mean rate of the copies of a run, and their number; the interval of a single one.

    There is none where a copy failed: the others had the machine for themselves since, and the run counts nowhere.
    """
    rates = [rate for run in runs if (rate := rate_of(run)) is not None]
    if not rates or not all(run.ok for run in runs):
        return ""
    if len(rates) == 1:
        return shown_rate(rates[0].value, rates[0].unit, rates[0].low, rates[0].high)
    return f"{len(rates)} × {shown_rate(sum(rate.value for rate in rates) / len(rates), rates[0].unit)}"
