# SPDX-License-Identifier: MIT
"""The load of the machine during one run: figures of its `monitor.csv`, cut to the rated windows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .._files import whole_lines
from .._runs.monitor import MONITOR_FILE, TIME_COLUMN, MonitorColumn
from .._runs.reading import RUN_FILE, read_run
from .._runs.record import RunRecord
from .._runs.samples import SAMPLES_FILE
from ..errors import Error, reason
from .samples import steps

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]
Window = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class MonitorRow:
    """One quantity of one run.

    Attributes:
        of: device it was read of, as machine, workers or gpu0.
        mean: mean over the time of the window.
        peak: the largest sample in it.
        total: `mean` times the length of the window in seconds; of a counter, as energy, its growth.
        samples: number of samples that lie in the window or reach into it.
    """

    job: str
    device: str = ""
    mode: str = ""
    precision: str = ""
    B: int = 1
    plan_id: str = ""
    repeat: int = 0
    share: str = ""
    kind: str = ""
    path: str = ""
    of: str
    metric: str
    unit: str = ""
    mean: float = math.nan
    peak: float = math.nan
    total: float = math.nan
    samples: int = 0


def monitor_frame(rows: list[MonitorRow]) -> pd.DataFrame:
    """Return the table of these rows."""
    import pandas as pd

    return pd.DataFrame([astuple(row) for row in rows], columns=[each.name for each in fields(MonitorRow)])


def read_monitor(path: str | Path) -> pd.DataFrame:
    """Read the samples in a `monitor.csv`: `time_ns` on the clock of `samples.csv`, and a column per quantity.

    Raises:
        Error: the file is missing or damaged; the message names it.
    """
    import pandas as pd

    try:
        table = pd.read_csv(whole_lines(Path(path))).astype({TIME_COLUMN: "int64"})
        values = table.columns.drop(TIME_COLUMN)
        return table.astype(dict.fromkeys(values, "float64"))
    except KeyError:
        raise Error(f"{path}: no column {TIME_COLUMN!r}: not the samples of a run") from None
    except (OSError, ValueError) as error:  # pandas' parser errors are ValueErrors
        raise Error(f"{path}: {reason(error)}") from error


def rows_of_monitor(run: str | Path) -> list[MonitorRow]:
    """Return the quantities of one run's directory, over its rated window; over all samples where it has none.

    Raises:
        Error: its record or its samples cannot be read.
    """
    directory = Path(run)
    record = read_run(directory / RUN_FILE)
    table = read_monitor(directory / MONITOR_FILE)
    times = table[TIME_COLUMN].to_numpy(np.int64)
    windows = _windows(record, directory) or [(int(times[0]), int(times[-1]))] if len(times) else [(0, 0)]
    return [
        row
        for name in table.columns.drop(TIME_COLUMN)
        for row in _quantity(record, directory, times, table[name].to_numpy(np.float64), name, windows)
    ]


def _windows(record: RunRecord, directory: Path) -> list[Window]:
    """Return the intervals that the run's rate is of: its turns, or the window in its record, else that of the
    observations which it kept."""
    if spans := record.window.get("spans_ns"):
        return [(int(start), int(stop)) for start, stop in spans]
    start, stop = record.window.get("start_ns"), record.window.get("stop_ns")
    if start is not None and stop is not None:
        return [(int(start), int(stop))]
    if not (directory / SAMPLES_FILE).is_file():
        return []
    kept = steps(directory)
    kept = kept[kept["phase"] != "warmup"]
    return [(int(kept["t_start_ns"].min()), int(kept["t_stop_ns"].max()))] if len(kept) else []


def _quantity(
    record: RunRecord, directory: Path, times: Int64s, values: Floats, name: str, windows: Sequence[Window]
) -> Iterator[MonitorRow]:
    of, metric, unit = MonitorColumn.parse(name)
    if unit == "bits":  # reasons for the clocks; their share of time is a column of its own
        return
    known = ~np.isnan(values)
    weights_s = np.sum([_overlap_s(times, window) for window in windows], axis=0)[known]
    values = values[known]
    reaching = values[weights_s > 0]
    if not len(reaching):
        return
    peak = float(reaching.max())
    average = min(peak, float(np.average(values, weights=weights_s)))  # else 100.00000000000001 %
    total = average * sum(stop - start for start, stop in windows) * 1e-9
    if unit == "J":  # a counter
        grown = np.interp(np.array(windows), times[known], values)
        average, total = math.nan, float(np.sum(grown[:, 1] - grown[:, 0]))
    yield MonitorRow(
        job=record.job, device=record.device.type, mode=record.mode, precision=record.precision, B=record.B,
        plan_id=record.plan_id, repeat=record.repeat, share=record.share, kind=record.kind, path=str(directory),
        of=of, metric=metric, unit=unit, mean=average, peak=peak, total=total,
        samples=len(reaching),
    )  # fmt: skip


def _overlap_s(times: Int64s, window: Window) -> Floats:
    """Seconds of the window that each sample speaks of: the time since the one before [S]."""
    before = np.concatenate([times[:1], times[:-1]])
    overlap: Floats = np.minimum(times, window[1]) - np.maximum(before, window[0]).astype(np.float64)
    return np.maximum(overlap, 0.0) * 1e-9
