# SPDX-License-Identifier: MIT
"""The tables of HFTA's two parsers: one column for each run, mode and precision, one row for each B.

As HFTA's, they have every B from 1 to the largest, with values between measured Bs interpolated on a line. Unlike
there, Bs below the smallest that was measured, and above the largest of a run, are empty.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from .._files import TEMPORARY, OutputError, read_json, write_json
from .._lazy import pandas as pd
from .._runs.folder import WORKFLOW_FILE
from .._runs.monitor import MONITOR_FILE, TIME_COLUMN, MonitorColumn
from .._runs.reading import RUN_FILE, read_run, read_runs
from .._runs.record import RunRecord
from .._runs.record_parts import MODES
from ..errors import Error, InvalidArgument, reason
from .hfta import TIMING_FILE, epochs_as_steps
from .loading import load
from .monitor import DCGM_FIELDS, DCGM_FILE, DcgmField, dcgm_rows, read_monitor, rows_of_monitor

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
    whole_gpus = {row.of for row in rows if row.of.startswith("gpu") and "/" not in row.of}
    places = whole_gpus if wanted.of == "gpu" else {wanted.of}
    mine = [row for row in rows if row.metric == wanted.metric and row.of in places]
    if not mine:
        return float("nan")
    values = [float(getattr(row, wanted.kept)) / wanted.scale for row in mine]
    return sum(values) if wanted.unit.startswith("bytes") else sum(values) / len(values)


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
            made, name = pd.DataFrame(columns), f"{mode}:{precision}"
            ends = {"avg": made.mean(axis=1), "min": made.min(axis=1), "max": made.max(axis=1)}
            parts.append(made.assign(**{f"{name}:{end}": values for end, values in ends.items()}))
    table = pd.concat(parts, axis=1).sort_index()
    table.index.name = "B"
    return table


def _line(values: Mapping[int, float]) -> pd.Series[float]:
    """Values at every B from 1 to the largest, interpolated between those given, which are in order."""
    every = np.arange(1, max(values) + 1)
    return pd.Series(np.interp(every, list(values), list(values.values()), left=np.nan), index=every)


_OURS = "dnnsuite.json"  # by which a folder of ours is known
_ONE_PROCESS = ("serial", "hfta")


def save_hfta_tree(*directories: str | Path, to: str | Path) -> list[Path]:
    """Write the finished runs of workflows in HFTA's directory layout.

    Files are `TO/<job>/run<repeat>/<device>/<device model>/<precision>/<mode>/B<n>/[idx<i>/]timing.csv`, without `B<n>`
    for serial, and `dcgm_metrics.csv` beside the processes if the run was monitored. If a point was measured again, the
    last run counts. A folder that this function wrote before is replaced.

    Args:
        directories: outputs of workflows, as for :func:`dnnsuite.results.load`.
        to: the folder in which each job gets a folder.

    Returns:
        The folder of each job.

    Raises:
        InvalidArgument: there is no run of a workflow, there are two workflows of one job, or a folder has other
            content.
        OutputError: a file cannot be written.
    """
    table = load(*directories)
    chosen = table[(table["kind"] == "workflow") & (table["status"] == "ok")].drop_duplicates("run_id")
    if chosen.empty:
        raise InvalidArgument(f"{', '.join(map(str, directories))}: no finished run of a workflow in it")
    written = []
    for job, of_job in chosen.groupby("job"):
        if of_job["plan_id"].nunique() > 1:
            places = ", ".join(sorted(set(of_job["plan_path"])))
            raise InvalidArgument(f"{job}: runs of several workflows ({places}); write each to a separate tree")
        points = of_job.sort_values("started").drop_duplicates(["mode", "precision", "B", "repeat"], keep="last")
        written.append(_write_job(Path(to) / str(job), of_job["plan_id"].iloc[0], list(map(Path, points["path"]))))
    return written


def refuse_other_tree(folder: Path, plan_id: str | None = None) -> None:
    """Refuse a job's folder that holds anything but the tree of the plan `plan_id`; None is one that has not begun.

    Raises:
        InvalidArgument: the message names the folder.
    """
    if folder.is_dir() and not any(folder.iterdir()):
        return
    owner = read_json(folder / _OURS).get("plan_id") if (folder / _OURS).is_file() else None
    above = next((each for each in (folder, *folder.parents) if each.exists()), folder)
    if (folder.exists() and (owner is None or owner != plan_id)) or not above.is_dir():
        raise InvalidArgument(f"{above} holds something else; choose another folder for the tree")


def _write_job(folder: Path, plan_id: str, runs: list[Path]) -> Path:
    """One job's folder, whole or not at all."""
    refuse_other_tree(folder, plan_id)
    made = folder.with_name(f"{TEMPORARY}{folder.name}")
    try:
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        for run in runs:
            _write_run(made, run)
        write_json(made / _OURS, {"plan_id": plan_id})
        if folder.exists():
            shutil.rmtree(folder)
        made.rename(folder)
    except OSError as error:
        raise OutputError(f"cannot write {folder}: {reason(error)}") from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return folder


def hfta_folder(record: RunRecord) -> Path:
    """Return the folder of a run in the tree of its job."""
    model = str(record.details.get("device_model") or "") or record.device.type
    path = Path(f"run{record.repeat}", record.device.type, model, record.precision, record.mode)
    return path if record.mode == "serial" else path / f"B{record.B}"


def _write_run(job: Path, run: Path) -> None:
    record = read_run(run / RUN_FILE)
    target = job / hfta_folder(record)
    replicas = sorted(run.glob(f"idx*/{TIMING_FILE}"), key=lambda path: int(path.parent.name[3:]))
    if not replicas and record.mode not in _ONE_PROCESS:
        replicas = [run / TIMING_FILE]  # a single process has no folder of its own
    for i, timing in enumerate(replicas):
        _copy(timing, target / f"idx{i}" / TIMING_FILE)
    if not replicas:
        _copy(run / TIMING_FILE, target / TIMING_FILE)
    if (run / MONITOR_FILE).is_file():
        dcgm_table(record, read_monitor(run / MONITOR_FILE)).to_csv(target / DCGM_FILE)


def _copy(source: Path, target: Path) -> None:
    if not source.is_file():
        raise Error(f"{source.parent}: no {source.name} in it: not the run of a workflow")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def dcgm_table(record: RunRecord, samples: pd.DataFrame) -> pd.DataFrame:
    """Return the samples of a run in the columns of HFTA's `dcgm_metrics.csv`, cut to the rated window.

    Fields of a GPU are those of the first one, NaN where it does not give them; without a GPU there are none.

    Args:
        samples: samples from :func:`dnnsuite.results.read_monitor`.
    """
    start, stop = record.window.get("start_ns"), record.window.get("stop_ns")
    times = samples[TIME_COLUMN]
    if start is not None and stop is not None and times.between(start, stop).any():
        samples = samples[times.between(start, stop)]
    gpus = sorted({found[0] for name in samples.columns if (found := re.match(r"gpu\d+(?=\.)", name))})
    columns: dict[str, Any] = {}
    for each in DCGM_FIELDS if gpus else ():
        name = str(MonitorColumn(gpus[0], each.metric, each.unit))
        columns[each.name] = samples[name] / each.scale if name in samples else float("nan")
    used, available = (samples[f"machine.memory_{name}_bytes"] for name in ("used", "available"))
    since_1970_s = datetime.fromisoformat(record.started.utc.replace("Z", "+00:00")).timestamp()
    columns["timestamp"] = (samples[TIME_COLUMN] - record.started.monotonic_ns) * 1e-9 + since_1970_s
    columns["cpu_percent"] = samples["machine.busy_pct"].bfill()  # the first sample has no rate yet
    columns |= {"host_mem_total": used + available, "host_mem_available": available}
    return pd.DataFrame(columns).reset_index(drop=True)
