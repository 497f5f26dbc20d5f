# SPDX-License-Identifier: MIT
"""Output of a run about itself: its log, lines about its steps and epochs, and the machine's load.

The lines are in the form of SC20's tutorial or of TBD's two versions. They are in train.log and on the screen, which
has a bar with the time left on a terminal. The load is in `monitor.csv`, which a resumed run continues.
"""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from .._files import OutputError
from .._runs.monitor import MONITOR_FILE, TIME_COLUMN, MonitorColumn, MonitorLog
from .._runs.progress import Progress
from .._shown import metric
from .._shown import rate as shown_rate
from ..errors import reason
from ..profiler.monitor import Monitor

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


Means = Mapping[str, float]


@dataclass(frozen=True)
class Window:
    """Steps between two looks at the losses.

    Attributes:
        epoch, iteration: those of the last step, from 0.
        steps: steps of an epoch, or of a validation.
        done: steps of the run so far.
        count: steps in the window.
        seconds, data_s: time they took, and the part of it spent waiting for data.
        items: items of all models and processes.
        means: means over this process's samples in the window.
    """

    epoch: int
    iteration: int
    steps: int
    done: int
    count: int
    seconds: float
    data_s: float
    items: float
    means: Means


class Lines:
    """Base of the forms in which a run's lines are written.

    Args:
        names: names of an array's models.
    """

    def __init__(self, log: Log, names: Sequence[str] = ()) -> None:
        self.log, self.names = log, names

    def of(self, number: int) -> str:
        """Return the name of a model, to begin its line; empty where there is one only."""
        return f"model {number} ({self.names[number]}): " if self.names else ""

    def trained(self, window: Window) -> None:
        """Print the line about steps of training."""

    def validated(self, window: Window) -> None:
        """Print the line about batches of a validation."""

    def ended(self, models: Sequence[int], trained: Sequence[Means], valid: Sequence[Means]) -> None:
        """Print the lines about the epoch that has ended, one per model."""
        for number, own, found in zip(models, trained, valid, strict=True):
            if "acc1" in found:
                self.log.info(f"{self.of(number)}train acc1={own['acc1']}, valid acc1={found['acc1']}")


class Sc20Lines(Lines):
    """`Epoch: 1, Iteration: 20, Avg img/sec: 680.5`."""

    def trained(self, window: Window) -> None:
        if window.iteration:  # a line for the first iteration would tell of one batch, and of what only starts
            rate = window.items / window.seconds
            self.log.info(f"Epoch: {window.epoch + 1}, Iteration: {window.iteration}, Avg img/sec: {rate}")


class TbdPytorchLines(Lines):
    """`Epoch: [0][  10/5005]`, tabs between meters: each the window's value, and in brackets the epoch's so far.

    Rates are items over time; the original averages rates, which overstates where steps differ.
    """

    def __init__(self, log: Log, names: Sequence[str] = ()) -> None:
        super().__init__(log, names)
        self._sums: dict[str, float] = {}

    def trained(self, window: Window) -> None:
        self._tell(f"Epoch: [{window.epoch}]", window, rate=True)

    def validated(self, window: Window) -> None:
        self._tell("Test: ", window, rate=False)

    def _tell(self, what: str, window: Window, rate: bool) -> None:
        if window.iteration < window.count:  # the first of an epoch, or of a validation
            self._sums = {}
        own = {"n": window.count, "seconds": window.seconds, "data_s": window.data_s, "items": window.items}
        own |= {name: value * window.items for name, value in window.means.items()}
        for name, value in own.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
        both = own, self._sums
        parts = [f"{what}[{window.iteration:{len(str(window.steps))}d}/{window.steps}]"]
        parts.append("Time {:6.3f} ({:6.3f})".format(*(each["seconds"] / each["n"] for each in both)))
        if rate:
            rates = (each["items"] / each["seconds"] for each in both)
            parts.append("Batch throughput {:6.3f} ({:6.3f}) samples/s".format(*rates))
            parts.append("Data {:6.3f} ({:6.3f})".format(*(each["data_s"] / each["n"] for each in both)))
        parts.append("Loss {:.4e} ({:.4e})".format(*(each["loss"] / each["items"] for each in both)))
        for k in (1, 5):
            if f"acc{k}" in own:
                shares = (100 * each[f"acc{k}"] / each["items"] for each in both)
                parts.append(f"Acc@{k} " + "{:6.2f} ({:6.2f})".format(*shares))
        self.log.plain("\t".join(parts))

    def ended(self, models: Sequence[int], trained: Sequence[Means], valid: Sequence[Means]) -> None:
        super().ended(models, trained, valid)
        for found in valid:
            self.log.plain(accuracies(found))


class TbdTf2Lines(Lines):
    """`TimeHistory: 12.34 seconds, 3112.45 examples/second between steps 100 and 200`."""

    def trained(self, window: Window) -> None:
        rate = window.items / window.seconds
        self.log.plain(
            f"TimeHistory: {window.seconds:.2f} seconds, {rate:.2f} examples/second between steps "
            f"{window.done - window.count} and {window.done}"
        )


class JobLines(Lines):
    """`Epoch 1, step 40 of 40: 6,333 samples/s, loss 0.1973`, and what a job's metric was on held-out data."""

    def trained(self, window: Window) -> None:
        rate = shown_rate(window.items / window.seconds, "samples/s")
        step = f"Epoch {window.epoch + 1}, step {window.iteration + 1} of {window.steps}"
        self.log.info(f"{step}: {rate}, loss {window.means['loss']:.4g}")

    def ended(self, models: Sequence[int], trained: Sequence[Means], valid: Sequence[Means]) -> None:
        for number, own, found in zip(models, trained, valid, strict=True):
            # Where there is a metric it stands for the loss, which other tensors than those of training may not have.
            kept = {name: value for name, value in found.items() if name != "loss"} or found
            held_out = ", ".join(f"{name} {metric(value)}" for name, value in kept.items())
            self.log.info(f"{self.of(number)}loss {metric(own['loss'])}; held out: {held_out}")


LINES = {"job": JobLines, "sc20": Sc20Lines, "tbd-pytorch": TbdPytorchLines, "tbd-tf2": TbdTf2Lines}


def accuracies(valid: Means) -> str:
    """` * Acc@1 76.130 Acc@5 92.862`, the last line of TBD's validation; the loss where there is no accuracy."""
    found = [f"Acc@{k} {100 * valid[f'acc{k}']:.3f}" for k in (1, 5) if f"acc{k}" in valid]
    told = " ".join(found) or f"Loss {valid['loss']:.4e}"
    return f" * {told}"


_INTERVAL_S = 0.5
_WRITE_AGAIN_S = 10.0
_COSTS = 500  # a file is written again once this many times as long as writing took has passed


class Watch:
    """Sampler of the machine and this process while its `with` block is open; `write` may be called at any time.

    Args:
        folder: directory of the run; None in processes that are not the first, where nothing is done.
        gpus: sample those as well.
        go_on: rows of the run's file are kept, on the clock of this boot.
    """

    def __init__(self, folder: Path | None, gpus: bool, go_on: bool) -> None:
        self._folder, self._ended = folder, False
        kind = "auto" if folder is not None else "none"
        self._monitor = Monitor(kind, gpus=gpus, counters=False, interval_s=_INTERVAL_S)
        self._next_s = time.monotonic() + _WRITE_AGAIN_S
        if folder is not None and go_on and (folder / MONITOR_FILE).is_file():
            _restore(self._monitor.log, folder / MONITOR_FILE)

    def __enter__(self) -> Watch:
        self._monitor.__enter__()
        self._monitor.follow(os.getpid())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """End sampling and write the file: before the record, which says that all is done."""
        if self._ended:
            return
        self._ended = True
        self._monitor.__exit__(None, None, None)
        if self._folder is not None:
            self._monitor.write(self._folder)

    def write_now_and_then(self) -> None:
        """Write the file, unless that was done a short time ago: a process that is killed loses little."""
        began_s = time.monotonic()
        if self._folder is None or began_s < self._next_s:
            return
        self._monitor.write(self._folder)
        now_s = time.monotonic()
        self._next_s = now_s + max(_WRITE_AGAIN_S, _COSTS * (now_s - began_s))


def _restore(log: MonitorLog, path: Path) -> None:
    """Put the rows of a file before those to come; none of a file that is damaged."""
    try:
        with open(path, newline="", encoding="utf-8", errors="replace") as file:
            rows = [_row(row) for row in csv.DictReader(file)]
    except (OSError, ValueError, csv.Error):
        return
    if not rows:
        return
    last_ns, now_ns = rows[-1][0], time.monotonic_ns()
    # The clock began anew with the machine's boot: the file's own time says how long ago it was written.
    age_ns = max(time.time_ns() - path.stat().st_mtime_ns, 0)
    shift_ns = now_ns - age_ns - last_ns if last_ns > now_ns else 0
    for t_ns, values in rows:
        log.add(t_ns + shift_ns, values)


def _row(cells: Mapping[str, str]) -> tuple[int, list[tuple[MonitorColumn, float]]]:
    """Parse a row of a `monitor.csv`: its time in ns, and the values that it has."""
    t_ns = int(cells.get(TIME_COLUMN) or "")
    if not 0 <= t_ns < 2**62:
        raise ValueError(f"{t_ns} ns is not a time of this machine")
    named = ((name, text) for name, text in cells.items() if name and name != TIME_COLUMN and text)
    return t_ns, [(MonitorColumn.parse(name), float(text)) for name, text in named]
