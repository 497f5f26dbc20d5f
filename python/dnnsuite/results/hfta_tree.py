# SPDX-License-Identifier: MIT
"""Finished workflows as a tree of HFTA's files, for scripts that read such."""

from __future__ import annotations

import re
import shutil
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._files import TEMPORARY, OutputError, read_json, write_json
from .._runs.monitor import MONITOR_FILE, TIME_COLUMN, MonitorColumn
from .._runs.reading import RUN_FILE, read_run
from .._runs.record import Moment, RunRecord
from ..errors import Error, InvalidArgument, reason
from .hfta import TIMING_FILE
from .hfta_monitor import DCGM_FIELDS, DCGM_FILE
from .loading import load
from .monitor import read_monitor

if TYPE_CHECKING:
    import pandas as pd

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
    import pandas as pd

    start, stop = record.window.get("start_ns"), record.window.get("stop_ns")
    times = samples[TIME_COLUMN]
    if start is not None and stop is not None and times.between(start, stop).any():
        samples = samples[times.between(start, stop)]
    gpus = sorted({found[0] for name in samples.columns if (found := re.match(r"gpu\d+(?=\.)", name))})
    columns: dict[str, Any] = {}
    for field in DCGM_FIELDS if gpus else ():
        name = str(MonitorColumn(gpus[0], field.metric, field.unit))
        columns[field.name] = samples[name] / field.scale if name in samples else float("nan")
    used, available = (samples[f"machine.memory_{name}_bytes"] for name in ("used", "available"))
    columns["timestamp"] = (samples[TIME_COLUMN] - record.started.monotonic_ns) * 1e-9 + _since_1970_s(record.started)
    columns["cpu_percent"] = samples["machine.busy_pct"].bfill()  # the first sample has no rate yet
    columns |= {"host_mem_total": used + available, "host_mem_available": available}
    return pd.DataFrame(columns).reset_index(drop=True)


def _since_1970_s(moment: Moment) -> float:
    return datetime.fromisoformat(moment.utc.replace("Z", "+00:00")).timestamp()
