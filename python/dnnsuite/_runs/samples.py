# SPDX-License-Identifier: MIT
"""`samples.csv`: the raw observations of one worker, in one form for every kind of run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .._files import SUM, sums_of, unchanged, write_text
from ..errors import Error, reason
from .rates import Steps
from .record import Samples

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
