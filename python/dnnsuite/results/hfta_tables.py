# SPDX-License-Identifier: MIT
"""The tables of HFTA's two parsers: one column for each run, mode and precision, one row for each B.

As HFTA's, they have every B from 1 to the largest, with values between measured Bs interpolated on a line. Unlike
there, Bs below the smallest that was measured, and above the largest of a run, are empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .._runs.folder import WORKFLOW_FILE
from .._runs.modes import MODES
from .._runs.reading import read_runs
from ..errors import Error, InvalidArgument
from .hfta import epochs_as_steps
from .hfta_monitor import DcgmField, dcgm_rows
from .monitor import MonitorRow, rows_of_monitor

if TYPE_CHECKING:
    import pandas as pd

_WARMUP_EPOCHS = {"cpu": 1, "cuda": 1, "xla": 2}


@dataclass(frozen=True, order=True)
class HftaPoint:
    """A mode, a precision, a number of models."""

    mode: str
    precision: str
    B: int


@dataclass
class HftaRuns:
    """The directories of the points of one run of a workflow."""

    root: Path
    places: dict[HftaPoint, Path] = field(default_factory=dict)

    def timings(self, point: HftaPoint, filename: str) -> list[Path]:
        """Return the files of a point's processes."""
        place = self.places[point]
        return sorted(place.glob(f"idx*/{filename}")) or [place / filename]


def runs_below(outdir: Path, device: str, device_model: str) -> list[HftaRuns]:
    """Return the runs of a directory: one of HFTA's, the folder above `run0`, `run1`, … of a workflow of HFTA's, or the
    output of a workflow of this package, with its repeats.

    Raises:
        InvalidArgument: it is neither, or it has no run on that device.
    """
    if (outdir / WORKFLOW_FILE).is_file():
        found = _repeats(outdir, device)
    else:
        above = (
            [] if (outdir / device).is_dir() else sorted(outdir.glob("run[0-9]*"), key=lambda run: int(run.name[3:]))
        )
        found = [_tree(run, run / device / device_model) for run in above or [outdir]]
    if not any(runs.places for runs in found):
        raise InvalidArgument(f"{outdir}: no runs in {device}/{device_model}, and no output of a workflow on {device}")
    return found


def _repeats(outdir: Path, device: str) -> list[HftaRuns]:
    repeats: dict[int, HftaRuns] = {}
    for directory, record in read_runs(outdir / "runs")[0]:
        if record.ok and record.device.type == device:
            runs = repeats.setdefault(record.repeat, HftaRuns(outdir))
            runs.places[HftaPoint(record.mode, record.precision, record.B)] = directory
    return [repeats[number] for number in sorted(repeats)]


def _tree(outdir: Path, root: Path) -> HftaRuns:
    runs = HftaRuns(outdir)
    for place in sorted(root.glob("*/*")):
        precision, mode = place.parts[-2:]
        if mode == "serial":
            runs.places[HftaPoint(mode, precision, 1)] = place
        elif mode in MODES:
            for of_B in place.glob("B[0-9]*"):
                runs.places[HftaPoint(mode, precision, int(of_B.name[1:]))] = of_B
    return runs


def hfta_throughput(files: Sequence[Path], device: str) -> float:
    """HFTA's rate of a point: samples of all processes after the warm-up / (last stop - first start).

    Raises:
        Error: a file is missing or damaged, or has no epoch after the warm-up; the message names it.
    """
    first, last, samples = float("inf"), float("-inf"), 0
    for file in files:
        kept = epochs_as_steps(file).after_epochs(_WARMUP_EPOCHS[device])
        if not len(kept):
            raise Error(f"{file}: no epoch after the warm-up of {_WARMUP_EPOCHS[device]}")
        first, last = min(first, float(kept.starts_ns[0])), max(last, float(kept.stops_ns[-1]))
        samples += int(kept.items.sum())
    return samples / ((last - first) * 1e-9)


def dcgm_value(place: Path, wanted: DcgmField, filename: str) -> float:
    """Return the figure of a point that HFTA's parser reports for a field, from its file or from our `monitor.csv`.

    Of ours the window is the rated one, and PCIe traffic is the number of bytes in it. NaN where it was not read.

    Raises:
        Error: neither file is there, or it is damaged; the message names it.
    """
    theirs = place / filename
    rows = dcgm_rows(theirs) if theirs.is_file() else rows_of_monitor(place)
    mine = [row for row in rows if row.metric == wanted.metric and _is_of(row, wanted)]
    if not mine:
        return float("nan")
    values = [float(getattr(row, wanted.kept)) / wanted.scale for row in mine]
    return sum(values) if wanted.unit.startswith("bytes") else sum(values) / len(values)


def _is_of(row: MonitorRow, wanted: DcgmField) -> bool:
    return row.of.startswith("gpu") and "/" not in row.of if wanted.of == "gpu" else row.of == wanted.of


def hfta_table(
    runs: Sequence[HftaRuns],
    modes: Iterable[str],
    precisions: Iterable[str],
    value: Callable[[HftaRuns, HftaPoint], float],
) -> pd.DataFrame:
    """Return the table: index B, columns `{mode}:{precision}:{run}` and `:avg`, `:min`, `:max`; as HFTA's parsers
    write it.

    Args:
        runs: a column of each mode and precision is of one of these.
        value: figure of a point.

    Raises:
        InvalidArgument: a run lacks a mode in a precision; the message names both.
    """
    import pandas as pd

    precisions = list(precisions)
    parts = []
    for mode in modes:
        for precision in precisions:
            columns = {}
            for number, run in enumerate(runs):
                points = sorted(p for p in run.places if (p.mode, p.precision) == (mode, precision))
                if not points:
                    raise InvalidArgument(
                        f"{run.root}: no run of {mode} in {precision}; leave it out of --modes, --precs"
                    )
                columns[f"{mode}:{precision}:{number}"] = _line({p.B: value(run, p) for p in points})
            parts.append(_with_range(pd.DataFrame(columns), f"{mode}:{precision}"))
    table = pd.concat(parts, axis=1).sort_index()
    table.index.name = "B"
    return table


def _line(values: Mapping[int, float]) -> pd.Series[float]:
    """Values at every B from 1 to the largest, interpolated between those given, which are in order."""
    import pandas as pd

    every = np.arange(1, max(values) + 1)
    return pd.Series(np.interp(every, list(values), list(values.values()), left=np.nan), index=every)


def _with_range(columns: pd.DataFrame, name: str) -> pd.DataFrame:
    ends = {"avg": columns.mean(axis=1), "min": columns.min(axis=1), "max": columns.max(axis=1)}
    return columns.assign(**{f"{name}:{end}": values for end, values in ends.items()})
