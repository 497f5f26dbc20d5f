# SPDX-License-Identifier: MIT
"""Tables of results, and directories that hold such."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd

from dnnsuite import results
from dnnsuite._files import write_json
from dnnsuite._runs.record import Device, Isolation, Machine, Metric, Moment, RunRecord, Verdict

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "records"


def table(*rows: tuple[str, str, int, int, float], **more: Any) -> pd.DataFrame:
    """(mode, precision, B, repeat, rate) as results.load gives them; a NaN rate is a failed run."""
    records = []
    for mode, precision, B, repeat, value in rows:
        failed = math.isnan(value)
        record = {
            "job": "toy", "device": "cpu", "mode": mode, "precision": precision, "B": B, "repeat": repeat,
            "metric": "throughput", "value": value, "unit": "naps/s", "status": "failed" if failed else "ok",
            "failure": "oom" if failed else None, "run": f"{mode}{B}-{repeat}", **more,
        }  # fmt: skip
        records.append(record)
    frame = pd.DataFrame(records, columns=list(results.COLUMNS))
    return frame.astype({"value": "float64", "low": "float64", "high": "float64", "replica": "Int64"})


def row(summary: pd.DataFrame, mode: str, B: int, precision: str = "fp32") -> dict[str, Any]:
    found = summary[(summary["mode"] == mode) & (summary["B"] == B) & (summary["precision"] == precision)]
    assert len(found) == 1
    return dict(found.iloc[0])


def write_run(root: Path, mode: str = "serial", B: int = 1, repeat: int = 0, value: float | None = 100.0) -> Path:
    """A run of a workflow as the first version wrote it."""
    path = root / "runs" / f"20261121-0000{repeat:02d}-toy-{mode}-B{B}-fp32-r{repeat}"
    path.mkdir(parents=True)
    (root / "workflow.json").write_text("{}")
    metrics = [] if value is None else [
        {"name": "throughput", "value": value, "unit": "naps/s", "low": value - 1, "high": value + 1, "replica": None},
        {"name": "time/step", "value": 0.1, "unit": "s", "low": None, "high": None, "replica": 0},
    ]  # fmt: skip
    run = {
        "job": "toy",
        "device": "cpu",
        "mode": mode,
        "precision": "fp32",
        "B": B,
        "repeat": repeat,
        "unit": "naps",
        "status": "ok" if metrics else "failed",
        "failure": None if metrics else "oom",
        "metrics": metrics,
    }
    (path / "run.json").write_text(json.dumps(run))
    return path


def a_record(name: str, value: float = 100.0, **more: Any) -> RunRecord:
    """A record of today's form; `name` is its id."""
    values: dict[str, Any] = {
        "id": name, "kind": "workflow", "plan_id": "plan", "plan": "toy", "job": "toy", "mode": "serial",
        "precision": "fp32", "B": 1, "repeat": 0, "verdict": Verdict.good(),
        "machine": Machine("node", "A processor", 2, 1, (), "570"), "device": Device("cpu"),
        "started": Moment("2026-11-22T00:00:00.000Z", 0), "unit": "naps", "isolation": Isolation("affinity"),
        "versions": {"torch": "2.13.0+cpu"}, "metrics": (Metric("throughput", value, "naps/s"),), "threads": 1,
        "batch_size": 4, "data": "none", "preset": "quick", "job_version": "1",
    }  # fmt: skip
    return RunRecord(**{**values, **more})


def write_record(out: Path, record: RunRecord) -> Path:
    """Its directory, in the `runs` of an output."""
    folder = out / "runs" / record.id
    folder.mkdir(parents=True)
    write_json(folder / "run.json", record.to_dict())
    return folder


def write_monitored(
    out: Path, name: str, samples: list[tuple[float, float]], window: tuple[int, int] | None = None, **more: Any
) -> Path:
    """A run with these (seconds, percent of the machine) in its `monitor.csv`, and a file of its epochs."""
    limits = {} if window is None else {"start_ns": window[0] * 10**9, "stop_ns": window[1] * 10**9}
    path = write_record(out, a_record(name, window=limits, **more))
    rows = [f"{round(s * 1e9)},{busy},{2 * 2**30 + busy},{6 * 2**30 - busy}" for s, busy in samples]
    header = "time_ns,machine.busy_pct,machine.memory_used_bytes,machine.memory_available_bytes"
    (path / "monitor.csv").write_text("\n".join([header, *rows, ""]))
    epochs = [f"{e},{e},{1e9 + 2 * e},{1e9 + 2 * e + 2},100" for e in range(3)]
    (path / "timing.csv").write_text("\n".join([",epoch,epoch_start,epoch_stop,num_samples", *epochs, ""]))
    return path


def write_dcgm(folder: Path, gpu_util: list[float], **columns: list[float]) -> Path:
    """HFTA's `dcgm_metrics.csv` in a folder of a tree."""
    n = len(gpu_util)
    found: dict[str, Any] = {
        "DCGM_FI_DEV_GPU_UTIL": gpu_util, "DCGM_FI_DEV_FB_USED": [1024.0] * n, "DCGM_FI_DEV_MEM_COPY_UTIL": [0.0] * n,
        "timestamp": [1e9 + 15 * i for i in range(n)], "cpu_percent": [50.0] * n, "host_mem_total": [8.0] * n,
        "host_mem_available": [3.0] * n,
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    pd.DataFrame({**found, **columns}).to_csv(folder / "dcgm_metrics.csv")
    return folder / "dcgm_metrics.csv"
