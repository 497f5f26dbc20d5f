# SPDX-License-Identifier: MIT
"""Time and memory of `dnnsuite report` on many records, and of `dnnsuite import` on a CSV file of ncu.

    python benchmarks/instruments/bench_report.py [--records 10000] [--jobs 20] [--rows 500000]

The records and the file are made here. Time is CPU time of a process of its own, imports included; memory is the
largest resident set of it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench_importers import write_ncu

from dnnsuite._runs.record import Device, Isolation, Machine, Metric, Moment, RunRecord, Verdict


def write_suite(root: Path, records: int, jobs: int) -> Path:
    """An output of `dnnsuite run`: so many runs of so many jobs, one copy each."""
    random_rate = random.Random(0)
    runs = root / "runs"
    runs.mkdir(parents=True)
    (root / "suite.json").write_text(json.dumps({"id": "plan", "format": 2, "name": "many"}), encoding="utf-8")
    for number in range(records):
        repeat, job = divmod(number, jobs)
        folder = runs / f"job{job}-r{repeat}-d0"
        folder.mkdir()
        run = _record(f"job{job}", repeat, 100 * (1 + job) * random_rate.lognormvariate(0, 0.02))
        (folder / "run.json").write_text(json.dumps(run.to_dict(), indent=1), encoding="utf-8")
    return root


def _record(job: str, repeat: int, rate: float) -> RunRecord:
    return RunRecord(
        id=f"{job}-{repeat}",
        kind="suite",
        plan_id="plan",
        plan="many",
        job=job,
        mode="shares",
        precision="fp32",
        B=1,
        repeat=repeat,
        verdict=Verdict.good(),
        machine=Machine("here", "a processor", 2, 2**34),
        device=Device("cpu"),
        started=Moment("2026-11-23T00:00:00.000Z", repeat),
        unit="images",
        share="0",
        isolation=Isolation("affinity", "auto"),
        metrics=(Metric("throughput", rate, "images/s"),),
        details={"seed_unit": {"name": "images", "items": 1}},
    )


def told(what: str, arguments: list[str]) -> str:
    """One line: CPU seconds and MiB of a command of `dnnsuite`."""
    command = [sys.executable, "-m", "dnnsuite", *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):  # a report without a target does not pass
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return f"{what}: {usage.ru_utime + usage.ru_stime:.1f} s of CPU time, {usage.ru_maxrss / 1024:.0f} MiB"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--rows", type=int, default=500_000)
    asked: Any = parser.parse_args(arguments)
    with TemporaryDirectory() as folder:
        suite = write_suite(Path(folder, "suite"), asked.records, asked.jobs)
        page = ["report", str(suite), "--out", str(Path(folder, "page.html"))]
        print(told(f"report of {asked.records:,} records with its page", page))
        csv = write_ncu(Path(folder, "ncu.csv"), asked.rows)
        print(told(f"import of {asked.rows:,} rows of ncu", ["import", str(csv)]))


if __name__ == "__main__":
    main()
