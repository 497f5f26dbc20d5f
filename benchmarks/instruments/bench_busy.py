# SPDX-License-Identifier: MIT
"""How often the demonstration is right beside neighbours: a workflow again and again next to generated load.

    python benchmarks/instruments/bench_busy.py --quiet truth.json    # once, where nothing else runs
    python benchmarks/instruments/bench_busy.py --truth truth.json --runs 20

The first command measures the quiet speedups, on each number of cores from one to all, because a workflow beside a
neighbour uses the cores that are left. The second one starts neighbours, runs the workflow, and compares each speedup
with the quiet one of as many threads. It prints how many speedups were told with `ok`, how many of these intervals hold
the quiet speedup, and how many runs were conclusive within 15 %.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dnnsuite import host, workflow
from dnnsuite._runs.monitor import free_cores
from dnnsuite.workflow import outputs

WITHIN = 0.15  # half width of a conclusive run
_BLOCK_BYTES = 64 << 20  # of a memory hog: more than caches hold
Truth = dict[str, dict[str, float]]  # cores → point → quiet speedup


def hog() -> None:
    """Keeps a core busy."""
    while True:
        pass


def bursts() -> None:
    """Keeps a core busy for seconds, and leaves it for seconds."""
    draw = random.Random(os.getpid())
    while True:
        until_s = time.monotonic() + draw.uniform(0.5, 4.0)
        while time.monotonic() < until_s:
            pass
        time.sleep(draw.uniform(0.5, 4.0))


def memory() -> None:
    """Copies memory without an end."""
    import numpy as np

    a, b = np.ones(_BLOCK_BYTES // 8), np.ones(_BLOCK_BYTES // 8)
    while True:
        np.copyto(a, b)


NEIGHBOURS: dict[str, tuple[Callable[[], None], ...]] = {
    "none": (),
    "one hog": (hog,),
    "two hogs": (hog, hog),
    "bursts": (bursts,),
    "memory": (memory,),
}


@contextlib.contextmanager
def beside(kind: str) -> Iterator[None]:
    """Context manager: these neighbours run."""
    context = multiprocessing.get_context("spawn")
    made = [context.Process(target=each, daemon=True) for each in NEIGHBOURS[kind]]
    for process in made:
        process.start()
    try:
        time.sleep(2.0 * bool(made))  # until they are at work
        yield
    finally:
        for process in made:
            process.kill()
            process.join()


@dataclass(frozen=True)
class Told:
    """A speedup that a workflow told: threads of its baseline, point, interval, and what it is worth."""

    threads: int
    point: str
    value: float | None
    low: float | None
    high: float | None
    status: str

    @property
    def ok(self) -> bool:
        return self.status.startswith("ok")

    def holds(self, truth: Truth) -> bool | None:
        """True if the interval holds the quiet speedup of as many threads; None where that is not known."""
        quiet = truth.get(str(self.threads), {}).get(self.point)
        if quiet is None or self.low is None or self.high is None:
            return None
        return self.low <= quiet <= self.high

    @property
    def narrow(self) -> bool:
        """True if it is told within 15 %."""
        if not self.value or self.low is None or self.high is None:
            return False
        return max(self.high / self.value, self.value / self.low) - 1 <= WITHIN


def told(report: workflow.WorkflowReport) -> list[Told]:
    """The speedups of a finished workflow, the baseline's own left out."""
    assert report.table is not None
    serial = report.table[report.table["mode"] == "serial"]
    threads = int(serial["threads"].iloc[0])
    return [
        Told(threads, f"{row['mode']} {row['precision']} B={row['B']}", row["normalized"], row["low"], row["high"],
             row["status"])
        for row in outputs.rows(report.summary, report.state)
        if row["mode"] != "serial" and "B" in row
    ]  # fmt: skip


def run(options: argparse.Namespace, **more: Any) -> list[Told]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        return told(workflow.run(options.job, out, quiet=True, preset=options.preset, monitor="none", **more))


def quiet_truth(options: argparse.Namespace) -> Truth:
    """Quiet speedups by the number of threads. Ends with a sentence where the machine is not quiet."""
    cores = free_cores()
    if cores.shared:
        sys.exit(f"the machine is not quiet: {cores}; the truth has to be measured where nothing else runs")
    found: Truth = {}
    allowed = sorted(os.sched_getaffinity(0))
    for count in range(1, len(allowed) + 1):
        os.sched_setaffinity(0, allowed[:count])
        rows = run(options, threads=count, goal=0.02, budget_s=4 * options.budget)
        unknown = [row.point for row in rows if row.value is None]
        if unknown:
            sys.exit(f"{unknown[0]} on {count} cores is inconclusive: the machine is not quiet")
        found[str(count)] = {row.point: float(row.value) for row in rows if row.value is not None}
        print(f"{count} cores: " + ", ".join(f"{point} {x:.2f}" for point, x in found[str(count)].items()))
    return found


def judged(kind: str, runs: Iterable[list[Told]], truth: Truth) -> dict[str, Any]:
    """Counts over the runs beside one kind of neighbours."""
    runs = list(runs)
    rows = [row for each in runs for row in each]
    with_ok = [row for row in rows if row.ok]
    held = [row.holds(truth) for row in with_ok]
    wrong_runs = sum(any(row.ok and row.holds(truth) is False for row in each) for each in runs)
    return {
        "neighbours": kind,
        "runs": len(runs),
        "speedups": len(rows),
        "told with ok": len(with_ok),
        "held": sum(each is True for each in held),
        "excluded": sum(each is False for each in held),
        "runs without an excluded one": len(runs) - wrong_runs,
        "runs conclusive within 15 %": sum(all(row.narrow for row in each) and bool(each) for each in runs),
    }


def table(rows: list[Mapping[str, Any]]) -> str:
    names = list(rows[0])
    lines = ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
    lines += ["| " + " | ".join(str(row[name]) for name in names) + " |" for row in rows]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--quiet", type=Path, help="measure the quiet speedups, and write them to this file")
    mode.add_argument("--truth", type=Path, help="file that --quiet wrote")
    parser.add_argument("--job", default="bert", help="workflow (default bert)")
    parser.add_argument("--preset", default="quick", help="its preset (default quick)")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of a run, its start included (default 60)")
    parser.add_argument("--runs", type=int, default=20, help="runs beside each kind of neighbours (default 20)")
    parser.add_argument(
        "--neighbours", nargs="+", choices=NEIGHBOURS, default=list(NEIGHBOURS), help="kinds (default all)"
    )
    options = parser.parse_args()
    if options.quiet:
        options.quiet.write_text(json.dumps({"job": options.job, "preset": options.preset,
                                             "speedups": quiet_truth(options)}))  # fmt: skip
        return
    recorded = json.loads(options.truth.read_text())
    if (recorded["job"], recorded["preset"]) != (options.job, options.preset):
        sys.exit(f"{options.truth} is of {recorded['job']}, preset {recorded['preset']}")
    found = []
    for kind in options.neighbours:
        runs = []
        for number in range(options.runs):
            with beside(kind):
                runs.append(run(options, budget_s=options.budget, seed=number))
            for row in runs[-1]:
                sides = "" if row.low is None or row.high is None else f" [{row.low:.2f}, {row.high:.2f}]"
                value = "" if row.value is None else f"{row.value:.2f}"
                print(f"{kind}, run {number + 1}: {row.threads} threads, {row.point} {value}{sides} {row.status}",
                      file=sys.stderr, flush=True)  # fmt: skip
        found.append(judged(kind, runs, recorded["speedups"]))
    described = host.describe()
    print(table(found))
    print(f"\n{options.job}, preset {options.preset}, {options.budget:.0f} s; "
          f"{len(described['cpus_allowed'])} × {described['cpu_model']}; {time.strftime('%Y-%m-%d')}")  # fmt: skip


if __name__ == "__main__":
    main()
