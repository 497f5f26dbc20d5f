# SPDX-License-Identifier: MIT
"""What runs now, how many are left, for how long: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .launch import Point

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

__all__ = ["Durations", "Progress", "clock_text"]


class Durations:
    """How long runs have taken, and from that how long others will."""

    def __init__(self) -> None:
        self._seen: dict[Point, list[float]] = defaultdict(list)

    def add(self, point: Point, seconds: float) -> None:
        self._seen[point].append(seconds)

    def expect_s(self, point: Point) -> float | None:
        """Seconds a run of `point` will take; None before anything was seen.

        The mean of the same point if it has run; else that of the nearest B of the same mode, scaled by B but
        for the start-up that any B pays; else the mean of everything.
        """
        if not self._seen:
            return None
        if point in self._seen:
            return _mean(self._seen[point])
        same = [p for p in self._seen if p.mode == point.mode]
        if not same:
            return _mean(s for all_s in self._seen.values() for s in all_s)
        near = min(same, key=lambda p: (abs(p.B - point.B), p))
        startup_s = min(_mean(all_s) for all_s in self._seen.values()) / 2
        return startup_s + max(0.0, _mean(self._seen[near]) - startup_s) * point.B / near.B

    def expect_all_s(self, points: Iterable[Point]) -> float | None:
        """Seconds for all of `points` one after another."""
        expected = [self.expect_s(point) for point in points]
        known = [seconds for seconds in expected if seconds is not None]
        return sum(known) if len(known) == len(expected) else None


class Progress:
    """Tells a person how far a workflow is. Use as a context manager."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        self._console = console
        self._live = console.is_terminal and not quiet
        self._quiet = quiet
        self._bar = Bar(
            SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(),
            TimeElapsedColumn(), TextColumn("{task.fields[eta]}"),
            console=console, transient=True, refresh_per_second=4, disable=not self._live,
        )  # fmt: skip
        self._task: TaskID = self._bar.add_task("", total=None, eta="")
        self._eta_at_s: float | None = None

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bar.stop()

    def stage(self, text: str, total: int | None = None) -> None:
        """A new stage of `total` steps begins."""
        self._eta_at_s = None
        self._bar.reset(self._task, description=text, total=total, eta="")
        if not self._live:
            self.line(text)

    def now(self, text: str, eta_s: float | None) -> None:
        """What runs now, and how many seconds are left in the stage."""
        self._eta_at_s = None if eta_s is None else time.monotonic() + eta_s
        self._bar.update(self._task, description=text, eta=self._eta_text())

    def tick(self) -> None:
        """Something still runs."""
        if self._live:
            self._bar.update(self._task, eta=self._eta_text())

    def done(self, text: str) -> None:
        """A step of the stage has ended."""
        self._bar.advance(self._task)
        eta = self._eta_text()
        self.line(f"{text}  {eta}" if eta and not self._live else text)

    def line(self, text: str) -> None:
        """A line that stays."""
        if not self._quiet:
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _eta_text(self) -> str:
        return (
            "" if self._eta_at_s is None else f"ETA {clock_text(max(0.0, self._eta_at_s - time.monotonic()))}"
        )


def clock_text(seconds: float) -> str:
    """75 → "1:15", 3700 → "1:01:40"."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers)
