# SPDX-License-Identifier: MIT
"""The load of the machine during one run: figures of its `monitor.csv`, cut to the rated windows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from .._files import regular, unchanged, whole_lines
from .._lazy import pandas as pd
from .._runs.monitor import MONITOR_FILE, TIME_COLUMN, MonitorColumn
from .._runs.rates import SAMPLES_FILE
from .._runs.reading import RUN_FILE, read_run
from .._runs.record import RunRecord
from ..errors import Error, InvalidArgument
from . import pool
from .hfta import places
from .intervals import half_width, mean
from .loading import load
from .summary import by_mode
from .table import reading

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
    return pd.DataFrame([astuple(row) for row in rows], columns=[each.name for each in fields(MonitorRow)])


def read_monitor(path: str | Path) -> pd.DataFrame:
    """Read the samples in a `monitor.csv`: `time_ns` on the clock of `samples.csv`, and a column per quantity.

    Raises:
        Error: the file is missing or damaged; the message names it.
    """
    with reading(path):
        table = pd.read_csv(whole_lines(Path(path)))
        if TIME_COLUMN not in table:
            raise ValueError(f"no column {TIME_COLUMN!r}: not the samples of a run")
        values = table.columns.drop(TIME_COLUMN)
        return table.astype({TIME_COLUMN: "int64", **dict.fromkeys(values, "float64")})


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


SAMPLE_COLUMNS = ("replica", "i", "epoch", "t_start_ns", "t_stop_ns", "items", "phase", "flag")
_MEASURED = ("i", "t_start_ns", "t_stop_ns", "items")


def steps(run: str | Path) -> pd.DataFrame:
    """Return the raw samples of one run directory, with the columns `SAMPLE_COLUMNS`; times are in nanoseconds.

    In a file of an earlier version some are missing: the epoch is 0, and the phase and flag are empty.

    Raises:
        Error: there are no samples, or a file is damaged; the message names it.
    """
    files = sorted(Path(run).glob("samples.csv")) or sorted(
        Path(run).glob("idx*/samples.csv"), key=lambda path: int(path.parent.name.removeprefix("idx"))
    )
    if not files:
        raise Error(f"{run}: no samples.csv in it")
    return pd.concat([_read(file, i) for i, file in enumerate(files)], ignore_index=True)


def _read(file: Path, replica: int) -> pd.DataFrame:
    with reading(file):
        table = pd.read_csv(unchanged(file), keep_default_na=False)
    if absent := [name for name in _MEASURED if name not in table.columns]:
        raise Error(f"{file}: no column {absent[0]!r}")
    for name, unknown in (("epoch", 0), ("phase", ""), ("flag", "")):
        if name not in table.columns:
            table[name] = unknown
    return table.assign(replica=replica)[list(SAMPLE_COLUMNS)]


_CELL = ["job", "mode", "precision", "B", "of", "metric", "unit"]


def load_monitors(*directories: str | Path, allow_unlike: bool = False) -> pd.DataFrame:
    """Load the machine's load during every finished run below the directories: a row per run and quantity.

    Args:
        directories: see :func:`dnnsuite.results.load`; in a tree of HFTA, `dcgm_metrics.csv` is read.
        allow_unlike: accept runs of unlike machines or settings together.

    Returns:
        A table with the columns of :class:`MonitorRow`; `attrs["problems"]` and `attrs["notes"]` are as in `load`.

    Raises:
        InvalidArgument: a directory is missing, or no run in it was monitored.
        UnlikeRuns: the runs must not be pooled, and that is not allowed.
    """
    rows: list[MonitorRow] = []
    problems: list[str] = []
    notes: list[str] = []
    for directory in map(Path, directories):
        if any(directory.rglob(DCGM_FILE)):
            found, bad = rows_of_dcgm(directory)
        else:
            table = load(directory)
            if not allow_unlike:
                pool.refuse_unlike(table)
            found, bad = _of_runs(table)
            bad = [*table.attrs["problems"], *bad]
            notes += table.attrs["notes"]
        rows += found
        problems += bad
    if not rows:
        why = f" ({problems[0]})" if problems else ""
        raise InvalidArgument(
            f"{', '.join(map(str, directories))}: no run in it has a {MONITOR_FILE}{why}; "
            "earlier versions, and --monitor none, write none"
        )
    frame = monitor_frame(rows)
    frame.attrs = {"problems": problems, "notes": notes}
    return frame


def _of_runs(table: pd.DataFrame) -> tuple[list[MonitorRow], list[str]]:
    """Return (rows, a sentence for each run whose samples cannot be read, and one for those that have none)."""
    rows: list[MonitorRow] = []
    problems: list[str] = []
    without = 0
    finished = pool.ended_well(table).drop_duplicates("run_id")
    for run in finished["path"]:
        directory = Path(run)
        if not (directory / MONITOR_FILE).is_file():
            without += 1
            continue
        try:
            rows += rows_of_monitor(directory)
        except Error as error:
            problems.append(f"skipped: {error}")
    if without:
        problems.append(f"{without} of {len(finished)} runs have no {MONITOR_FILE}")
    return rows, problems


def summarize_monitors(table: pd.DataFrame) -> pd.DataFrame:
    """Average over repeats, by job, mode, precision, B and quantity.

    The columns are job, mode, precision, B, of, metric, unit, mean, low, high, peak and runs. `low` and `high` are the
    limits of a 95 % interval by Student's t over the repeats, NaN if there is only one; copies of a job that share the
    machine count as one. No quantity is negative, and neither is `low`. For a counter such as energy, `mean` is its
    increase during the window.

    Args:
        table: table from :func:`load_monitors`.
    """
    table = table.assign(value=table["mean"].fillna(table["total"]))
    rows = []
    for cell, runs in table.groupby(_CELL, sort=False):
        values = runs.groupby(["plan_id", "repeat"])["value"].mean().tolist()
        average, half = mean(values), half_width(values)
        rows.append(
            (
                *cell, average, 0.0 if half > average else average - half, average + half, runs["peak"].max(),
                len(values),
            )
        )  # fmt: skip
    rows.sort(key=lambda row: (row[0], row[4], row[5], *by_mode(row[1], row[2]), row[3]))
    made = pd.DataFrame(rows, columns=[*_CELL, "mean", "low", "high", "peak", "runs"])
    made.attrs = dict(table.attrs)
    return made


DCGM_FILE = "dcgm_metrics.csv"
_MIB, _GIB = 1 << 20, 1 << 30


class DcgmField(NamedTuple):
    """A field of HFTA's parser.

    Attributes:
        of, metric: our name of it; of `gpu`, every whole GPU of the run.
        scale: our unit divided by DCGM's.
        kept: figure of a run that is reported.
        label: HFTA's label of the axis.
        plot_scale: DCGM's unit in that of the label.
    """

    name: str
    of: str
    metric: str
    unit: str
    scale: float
    kept: Literal["mean", "peak", "total"]
    label: str
    plot_scale: float = 1.0


DCGM_FIELDS = (
    DcgmField("DCGM_FI_DEV_GPU_UTIL", "gpu", "gpu_util", "%", 1, "mean", "GPU Utilization"),
    DcgmField("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gpu", "gpm_tensor", "%", 100, "mean",
              "Tensor (HMMA) pipe active (ratio of cycles)"),
    DcgmField("DCGM_FI_PROF_PIPE_FP16_ACTIVE", "gpu", "gpm_fp16", "%", 100, "mean",
              "FP16 pipe active (ratio of cycles; exclude HMMA)"),
    DcgmField("DCGM_FI_PROF_PIPE_FP32_ACTIVE", "gpu", "gpm_fp32", "%", 100, "mean",
              "FP32 pipe active (ratio of cycles)"),
    DcgmField("DCGM_FI_PROF_PIPE_FP64_ACTIVE", "gpu", "gpm_fp64", "%", 100, "mean",
              "FP64 pipe active (ratio of cycles)"),
    DcgmField("DCGM_FI_PROF_SM_OCCUPANCY", "gpu", "gpm_occupancy", "%", 100, "mean",
              "Warps resident on an SM (ratio of the possible)"),
    DcgmField("DCGM_FI_PROF_SM_ACTIVE", "gpu", "gpm_sm", "%", 100, "mean",
              "An SM has at least 1 warp assigned (ratio of cycles)"),
    DcgmField("DCGM_FI_DEV_FB_USED", "gpu", "memory_used", "bytes", _MIB, "peak",
              "Used frame buffer (global memory; in GB)", 1 / 1024),
    DcgmField("DCGM_FI_PROF_PCIE_RX_BYTES", "gpu", "gpm_pcie_rx", "bytes/s", 1, "total",
              "GB of active PCIe read data", 1 / _GIB),
    DcgmField("DCGM_FI_PROF_PCIE_TX_BYTES", "gpu", "gpm_pcie_tx", "bytes/s", 1, "total",
              "GB of active PCIe transmit data", 1 / _GIB),
    DcgmField("DCGM_FI_DEV_MEM_COPY_UTIL", "gpu", "memory_util", "%", 1, "mean", "Memory Utilization"),
    DcgmField("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gpu", "gpm_graphics", "%", 100, "mean",
              "Graphics engine active (ratio of time)"),
    DcgmField("DCGM_FI_PROF_DRAM_ACTIVE", "gpu", "gpm_dram", "%", 100, "mean",
              "Device memory interface active (ratio of cycles)"),
)  # fmt: skip
HOST_FIELDS = (
    DcgmField("cpu_percent", "machine", "busy", "%", 1, "mean", "CPU Utilization"),
    DcgmField("host_mem_usage", "machine", "memory_used", "bytes", 1, "peak", "Host Memory Usage (GB)", 1 / _GIB),
)
PIPE_MODELS = ("v100", "a100")  # GPUs of which HFTA reads more than utilisation and memory


def rows_of_dcgm(root: Path) -> tuple[list[MonitorRow], list[str]]:
    """Return (rows, a sentence for each damaged file) of every run in a tree; see :func:`dcgm_rows`."""
    rows: list[MonitorRow] = []
    problems: list[str] = []
    for place, path in places(root, DCGM_FILE):
        try:
            of_file = dcgm_rows(path)
        except Error as error:
            problems.append(f"skipped: {error}")
            continue
        rows += [
            replace(
                row, job=place.job(root), device=place.device, mode=place.mode, precision=place.precision, B=place.B,
                plan_id=place.plan_id(root), repeat=place.repeat,
            )
            for row in of_file
        ]  # fmt: skip
    return rows, problems


def dcgm_rows(path: Path) -> list[MonitorRow]:
    """Return the quantities in one file, of the samples from 10 to 90 % of it, as HFTA has it; of no job yet.

    `total` of PCIe traffic is HFTA's sum of samples, which is no number of bytes.

    Raises:
        Error: it is missing or damaged; the message names it.
    """
    with reading(path):
        table = pd.read_csv(regular(path))
        table = table.iloc[round(0.1 * len(table)) : round(0.9 * len(table))]
        table = table.assign(host_mem_usage=table["host_mem_total"].max() - table["host_mem_available"])
        rows = []
        for field in (*DCGM_FIELDS, *HOST_FIELDS):
            if field.name in table:
                ours = table[field.name].astype("float64").dropna() * field.scale
                rows.append(
                    MonitorRow(
                        job="", kind="hfta", path=str(path.parent), of="gpu0" if field.of == "gpu" else field.of,
                        metric=field.metric, unit=field.unit, mean=ours.mean(), peak=ours.max(), total=ours.sum(),
                        samples=len(ours),
                    )
                )  # fmt: skip
        return rows
