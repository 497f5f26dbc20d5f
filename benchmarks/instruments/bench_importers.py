# SPDX-License-Identifier: MIT
"""Time to read other tools' files, against reading them row by row, as TBD's scripts did.

    python benchmarks/instruments/bench_importers.py [--rows 1000000]

The files are made here, in the tools' formats. The peers are ours, in the manner of those scripts: `csv.DictReader` and
a dict per row for ncu, a scan of the rows for every kernel as `coreutil.py` did (on few kernels: it is quadratic), a
cursor and a loop over rows for SQLite.
"""

from __future__ import annotations

import argparse
import csv
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dnnsuite.importers import core_report, ncu, nsys
from dnnsuite.profiler.counters.roles import CORES, OF_PEAK

CYCLES = "gpc__cycles_elapsed.max"
PIPES = [f"sm__inst_executed_pipe_{pipe}{OF_PEAK}" for pipe in ("fma", "fp16", "tensor", "xu")]
HEADER = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Kernel Time","Context","Stream","Section Name",'
    '"Metric Name","Metric Unit","Metric Value"'
)


def write_ncu(path: Path, rows: int) -> Path:
    """A details page: five metrics a kernel."""
    with open(path, "w", encoding="utf-8") as file:
        print("==PROF== Disconnected from process 42", file=file)
        print(HEADER, file=file)
        for kernel in range(rows // 5):
            start = f'"{kernel}","42","python","host","kernel_{kernel % 50}<float, 4>","now","1","7","Metrics"'
            print(f'{start},"{CYCLES}","cycle","{1000 + kernel % 9000:,}"', file=file)
            for number, pipe in enumerate(PIPES):
                print(f'{start},"{pipe}","%","{(kernel * 7 + number) % 100}.25"', file=file)
    return path


def write_nsys(path: Path, rows: int) -> Path:
    """Kernels and the calls that launched them, half of the rows each."""
    db = sqlite3.connect(path)
    db.executescript(
        "CREATE TABLE StringIds (id, value);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, contextId, streamId, correlationId, globalPid,"
        " demangledName, gridX, gridY, gridZ, blockX, blockY, blockZ);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, eventClass, globalTid, correlationId, nameId,"
        " returnValue);"
    )
    db.executemany("INSERT INTO StringIds VALUES (?, ?)", [(n, f"kernel_{n}") for n in range(50)])
    work = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,0,1,7,?,?,?,1,1,1,32,1,1)"
    calls = "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,0,?,?,0,0)"
    pid = 42 << 24
    db.executemany(work, ((n * 5000, n * 5000 + 4000, n, pid, n % 50) for n in range(rows // 2)))
    db.executemany(calls, ((n * 5000 - 3000, n * 5000 - 2000, pid + 1, n) for n in range(rows // 2)))
    db.commit()
    db.close()
    return path


def ncu_by_rows(path: Path) -> dict[str, float]:
    """Core utilisation by a dict per row; the file must hold nothing else."""
    kernels: dict[str, dict[str, float]] = {}
    with open(path, encoding="utf-8", newline="") as file:
        next(file)
        for row in csv.DictReader(file):
            kernels.setdefault(row["ID"], {})[row["Metric Name"]] = float(row["Metric Value"].replace(",", ""))
    cycles = sum(kernel[CYCLES] for kernel in kernels.values())
    return {
        core: sum(kernel[CYCLES] * kernel[pipe] for kernel in kernels.values()) / cycles
        for core, pipe in zip(CORES, PIPES, strict=True)
    }


def ncu_by_scans(path: Path) -> dict[str, float]:
    """Core utilisation as coreutil.py went about it: the table in pandas, filtered anew for every kernel."""
    import pandas as pd

    table = pd.read_csv(path, skiprows=1)
    used, cycles = dict.fromkeys(CORES, 0.0), 0.0
    for kernel in range(int(table["ID"].max()) + 1):
        mine = table[table["ID"] == kernel]

        def value(metric: str, mine: pd.DataFrame = mine) -> float:
            return float(str(mine[mine["Metric Name"] == metric]["Metric Value"].iloc[0]).replace(",", ""))

        cycles += value(CYCLES)
        for core, pipe in zip(CORES, PIPES, strict=True):
            used[core] += value(CYCLES) * value(pipe)
    return {core: sums / cycles for core, sums in used.items()}


def ncu_here(path: Path) -> dict[str, float]:
    """The same by this package."""
    found, _ = core_report(ncu.read(path))
    return dict(zip(found["core"], found["pct_of_busy"], strict=True))


def nsys_by_rows(path: Path) -> dict[str, int]:
    """Time by kernel, and launches found by correlation, in a loop over rows."""
    db = sqlite3.connect(path)
    names = dict(db.execute("SELECT id, value FROM StringIds"))
    db.row_factory = sqlite3.Row
    launches = {row["correlationId"]: dict(row) for row in db.execute("SELECT * FROM CUPTI_ACTIVITY_KIND_RUNTIME")}
    total: dict[str, int] = {}
    for row in db.execute("SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL"):
        kernel = dict(row)
        if kernel["correlationId"] in launches:
            name = names[kernel["demangledName"]]
            total[name] = total.get(name, 0) + kernel["end"] - kernel["start"]
    db.close()
    return total


def nsys_here(path: Path) -> dict[str, int]:
    """The same by this package; all other columns are read as well."""
    from dnnsuite.profiler.activity import by_kernel, with_launches

    tables = nsys.read(path)
    launched = with_launches(tables["kernels"], tables["api"])
    table = by_kernel(launched[launched["launch_t0_ns"].notna()])
    return dict(zip(table["name"].astype(str), table["total_ns"].tolist(), strict=True))


def compare(title: str, own: Callable[[Path], Any], peers: dict[str, Callable[[Path], Any]], path: Path) -> None:
    """One line: seconds of the own way, and how many times faster it is; all must say the same."""
    best: dict[str, float] = {}
    for _ in range(2):  # in turns
        answers = []
        for name, run in {"own": own, **peers}.items():
            begin = time.thread_time()
            answers.append(run(path))
            best[name] = min(best.get(name, float("inf")), time.thread_time() - begin)
        assert all(
            set(answer) == set(answers[0]) and all(abs(answer[key] - answers[0][key]) < 1e-6 for key in answer)
            for answer in answers
        ), title
    ratios = "  ".join(f"vs {name} {best[name] / best['own']:.2f}x" for name in peers)
    print(f"{title:<36} own {best['own']:7.3f} s  {ratios}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    with TemporaryDirectory() as folder:
        few = write_ncu(Path(folder) / "few.csv", min(rows, 10_000))
        compare(f"ncu, {min(rows, 10_000)} rows", ncu_here, {"coreutil's scans": ncu_by_scans}, few)
        many = write_ncu(Path(folder) / "many.csv", rows)
        compare(f"ncu, {rows} rows", ncu_here, {"csv.DictReader": ncu_by_rows}, many)
        trace = write_nsys(Path(folder) / "trace.sqlite", rows)
        compare(f"nsys, {rows} rows", nsys_here, {"rows of sqlite3": nsys_by_rows}, trace)


if __name__ == "__main__":
    main()
