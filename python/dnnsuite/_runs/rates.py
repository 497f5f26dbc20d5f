# SPDX-License-Identifier: MIT
"""Items per second from the steps of replicas, pure arithmetic on nanoseconds; and the file of a worker's steps,
`samples.csv`, in one form for every kind of run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import timing
from .._files import SUM, sums_of, unchanged, write_text
from ..errors import Error, InvalidArgument, reason
from .record import Samples

Int64s = npt.NDArray[np.int64]
Float64s = npt.NDArray[np.float64]

FEWEST = 50  # steps below which their correlation cannot be seen: `timing.batch_means` says "too short"
_MOST_BLOCKS = 128  # more say nothing more: `timing.batch_means` would average them


@dataclass(frozen=True)
class Steps:
    """The timed steps of one replica, in order.

    `starts_ns`, `stops_ns` [S] on the monotonic clock all processes of a machine share; `items` [S] counts
    what a step finished, over all models of the replica; `epochs` [S] tells the epoch.
    """

    starts_ns: Int64s
    stops_ns: Int64s
    items: Int64s
    epochs: Int64s

    def __len__(self) -> int:
        return len(self.stops_ns)

    def after_epochs(self, dropped: int) -> Steps:
        """Leave out the first `dropped` epochs (warm-up)."""
        kept = self.epochs >= (self.epochs[0] + dropped if len(self) else 0)
        return Steps(self.starts_ns[kept], self.stops_ns[kept], self.items[kept], self.epochs[kept])

    def by_epoch(self) -> Steps:
        """Take each epoch as one step, for a job whose steps return before they are done."""
        epochs, first = np.unique(self.epochs, return_index=True)
        last = np.append(first[1:], len(self)) - 1
        return Steps(self.starts_ns[first], self.stops_ns[last], np.add.reduceat(self.items, first), epochs)

    def without_gaps(self) -> Steps:
        """Move each epoch to where the one before ended: others had turns between them."""
        starts, stops, end = self.starts_ns.copy(), self.stops_ns.copy(), None
        for epoch in np.unique(self.epochs):
            of_epoch = self.epochs == epoch
            shift = 0 if end is None else end - int(self.starts_ns[of_epoch][0])
            starts[of_epoch] += shift
            stops[of_epoch] += shift
            end = int(stops[of_epoch][-1])
        return Steps(starts, stops, self.items, self.epochs)


def common_window(replicas: Sequence[Steps]) -> tuple[int, int] | None:
    """Return (start, stop) in which every replica is active, last start to first stop; None if there is none."""
    if not replicas or any(len(steps) == 0 for steps in replicas):
        return None
    start = max(int(steps.starts_ns[0]) for steps in replicas)
    stop = min(int(steps.stops_ns[-1]) for steps in replicas)
    return (start, stop) if stop > start else None


def items_between(steps: Steps, start_ns: float, stop_ns: float) -> float:
    """Count the items finished in an interval; a step across its edge counts by the share of time inside.

    Time between two steps (data, synchronisation, end of epoch) belongs to the step that follows.
    """
    first, last = _done(steps, np.array([start_ns, stop_ns], dtype=np.float64))
    return float(last - first)


def _done(steps: Steps, times_ns: Float64s) -> Float64s:
    """Count the items finished by each time."""
    times = np.concatenate([steps.starts_ns[:1], steps.stops_ns]) - steps.starts_ns[0]
    done = np.concatenate([[0], np.cumsum(steps.items)])
    found: Float64s = np.interp(times_ns - float(steps.starts_ns[0]), times, done)
    return found


def rate(replicas: Sequence[Steps]) -> float:
    """Items per second of all replicas together over their common window; NaN when there is none."""
    window = common_window(replicas)
    if window is None:
        return float("nan")
    return sum(items_between(steps, *window) for steps in replicas) / ((window[1] - window[0]) * 1e-9)


def block_rates(replicas: Sequence[Steps], blocks: int) -> Float64s:
    """Rates [blocks] in equal blocks of the common window; empty when there is no window."""
    if blocks < 1:
        raise InvalidArgument(f"blocks={blocks}: must be at least 1")
    window = common_window(replicas)
    if window is None:
        return np.empty(0)
    edges = np.linspace(window[0], window[1], blocks + 1)
    length_s = (window[1] - window[0]) * 1e-9 / blocks
    items: Float64s = np.sum([np.diff(_done(steps, edges)) for steps in replicas], axis=0)
    return items / length_s


class RateInterval(NamedTuple):
    """95 % interval of a rate, and the correlation of neighbouring blocks; None with the reason where there is none."""

    low: float | None
    high: float | None
    lag1: float | None
    why: str


def interval(replicas: Sequence[Steps]) -> RateInterval:
    """95 % interval of the rate of all replicas together over their common window.

    The rates of blocks of equal time are a series, of a block per step but no more than tell anything. Its error is
    that of its slowest waves, as steps that follow each other are correlated. No bounds are given below FEWEST steps
    of a replica, and where the rate rises or falls all along.
    """
    window = common_window(replicas)
    if window is None:
        return RateInterval(None, None, None, "too short: there is no time in which all replicas are active")
    steps = min(int(np.sum((s.stops_ns > window[0]) & (s.stops_ns <= window[1]))) for s in replicas)
    if steps < FEWEST:
        return RateInterval(None, None, None, f"too short: {steps} steps, and {FEWEST} show how neighbours correlate")
    found = timing.batch_means(block_rates(replicas, min(steps, _MOST_BLOCKS)))
    if found.why:
        return RateInterval(None, None, found.lag1, found.why)
    return RateInterval(found.low, found.high, found.lag1, "")


def warmup(seconds: Float64s) -> dict[str, Any]:
    """Return the steady state of a series by MSER-5: `truncated` values before it; `steady` False where there is
    none."""
    found = timing.mser5(seconds)
    return {
        "method": "MSER-5",
        "truncated": found.truncated,
        "steady": found.steady,
        "reason": found.reason,
        "drift_per_100": found.drift_per_100,
    }


SAMPLES_FILE = "samples.csv"


class Sample(NamedTuple):
    """One observation: times of the monotonic clock, items finished, `phase` warmup or train, `flag` a disturbance."""

    epoch: int
    start_ns: int
    stop_ns: int
    items: float
    phase: str = "train"
    flag: str = ""


def samples_text(samples: Iterable[Sample]) -> str:
    """Text of the file: a line for each observation, with a checksum."""
    rows = [[str(i), str(s.epoch), str(s.start_ns), str(s.stop_ns), f"{s.items:.12g}", s.phase, s.flag]
            for i, s in enumerate(samples)]  # fmt: skip
    lines = [Samples().columns, *rows]
    return "\n".join(
        [*(f"{','.join(line)},{own}" for line, own in zip(lines, [SUM, *sums_of(lines)], strict=True)), ""]
    )


def write_samples(directory: Path, samples: Iterable[Sample]) -> None:
    """Write `samples.csv` whole or not at all."""
    write_text(directory / SAMPLES_FILE, samples_text(samples))


def read_steps(path: Path) -> Steps:
    """Return the rows of a `samples.csv`, of this form or an older one with fewer columns.

    Raises:
        Error: it is missing or damaged; the message names it.
    """
    try:
        header, *rows = unchanged(path).read_text(encoding="utf-8").splitlines() or [""]
        if not rows:
            raise ValueError("no samples in it")
        names = header.split(",")
        columns = dict(zip(names, zip(*(row.split(",") for row in rows), strict=True), strict=True))
        starts, stops = (np.array([int(v) for v in columns[name]], np.int64) for name in ("t_start_ns", "t_stop_ns"))
        items = np.array([float(value) for value in columns["items"]])
        epochs = np.array([int(value) for value in columns.get("epoch", ["0"] * len(rows))], np.int64)
    except (OSError, ValueError, KeyError, OverflowError) as error:
        raise Error(f"{path}: {reason(error)}") from error
    return Steps(starts, stops, np.rint(items).astype(np.int64), epochs)
