# SPDX-License-Identifier: MIT
"""Training steps of B models of each workload: the fused array against every other way to train them, in one run.

    python benchmarks/fused.py mlp_s pointnet --B 1 8
    python benchmarks/fused.py --B 8 --threads 2 --out results --markdown README.md
    python benchmarks/fused.py resnet18 --variants all --out results
    python benchmarks/fused.py mlp_m --memory

The variants take turns in every round, so that whatever drifts drifts for all. Speeds are relative to `serial`, with
the 95 % interval over rounds; milliseconds are the median of a step of one model. With one thread CPU time is counted,
with several wall time. StepRunner has the process keep its free memory, so all variants but `concurrent` gain by that.

variants:
  serial                torch, one model after the other
  serial+fused_adam     the same with torch's fused Adam
  serial+channels_last  the same, and convolutions in channels-last order
  serial+compile        the loss under torch.compile, fused Adam
  concurrent            B processes that share the threads
  hfta                  HFTA's operators and Adam (needs its package: a checkout in PYTHONPATH)
  vmap                  torch.func over stacked models
  vmap+compile          the same under torch.compile
  dnnsuite              the fused array, run by StepRunner

`--out DIR` has fused.csv (every round), fused.md and fused.png, all written anew after each workload; what DIR holds of
other workloads stays in the table, so that it can be filled in pieces. `--peer MODULE:FUNCTION`
adds a variant of your own: a function (B, workload) that returns one that trains one step of all B models; `workload`
has `make()`, `batch()` and `loss`. `--memory` prints the peak memory of 24 steps instead of speed: the array against B
models in one process, and against B processes of one model.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

import command
import fused_memory
import fused_table as table
import torch
import ways
from fused_table import Row
from variants import VARIANTS, Variant, peer
from with_hfta import NoOperator
from workloads import WORKLOADS

from dnnsuite._files import write_text
from dnnsuite.errors import Error

DEFAULT = [name for name in VARIANTS if not name.endswith("+compile")]


class Progress:
    """What is going on, on standard error: one line that is written over where it is a terminal."""

    def __init__(self) -> None:
        self.where = ""
        self._over = sys.stderr.isatty()

    def __call__(self, text: str) -> None:
        begin, end = ("\r\x1b[K", "") if self._over else ("", "\n")
        print(f"{begin}{self.where}: {text}", end=end, file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._over:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def measure(
    workload: str, B: int, makers: dict[str, Variant], options: argparse.Namespace, progress: Progress
) -> tuple[ways.Seconds, dict[str, str]]:
    """Seconds of a model's step of every variant that can run, and of the others the reason."""
    ready: dict[str, ways.Way] = {}
    notes: dict[str, str] = {}
    for name, make in makers.items():
        progress(f"building {name}")
        try:
            way = make(WORKLOADS[workload], B, options.threads)
            way(2)
        except Exception as error:  # a variant that refuses one workload must not cost the others' rates
            notes[name] = _reason(error)
        else:
            ready[name] = way
    clock = ways.clock_for(options.threads)
    seconds = ways.measure(
        ready, B, options.rounds, options.warmup, clock, segment_s=options.segment, progress=progress
    )
    torch.compiler.reset()
    return seconds, notes


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, (Error, NoOperator)) else f"{type(error).__name__}: {text[:150]}"


def show(workload: str, B: int, seconds: ways.Seconds, notes: dict[str, str]) -> None:
    print(f"{workload}, B={B}")
    for name, values in seconds.items():
        ratio = ""
        if table.BASE in seconds:
            speed = table.speed(seconds[table.BASE], values)
            ratio = f"{speed.ratio:6.2f}x [{speed.low:.2f}, {speed.high:.2f}]"
        print(f"{name:>22}  {1e3 * statistics.median(values):9.3f} ms  {ratio}", flush=True)
    for name, note in notes.items():
        print(f"{name:>22}  left out: {note}", flush=True)


def run(options: argparse.Namespace) -> list[Row]:
    """Measures all, and keeps what is in the output folder up to date."""
    makers = {name: VARIANTS[name] for name in options.variants} | {name: peer(name) for name in options.peer}
    csv, machine = options.out and options.out / "fused.csv", table.machine()
    rows = table.read_csv(csv) if csv else []
    if others := {row.machine for row in rows} - {machine}:
        raise Error(f"{csv} is of another machine ({', '.join(others)}): give --out a folder of its own")
    progress = Progress()
    points = [(workload, B) for workload in options.workloads for B in options.B]
    try:
        for number, (workload, B) in enumerate(points, 1):
            progress.where = f"[{number}/{len(points)}] {workload}, B={B}"
            seconds, notes = measure(workload, B, makers, options, progress)
            progress.clear()
            show(workload, B, seconds, notes)
            new = table.rows_of(workload, B, options.threads, seconds, notes, machine)
            rows = [row for row in rows if row.group != (options.threads, B, workload)] + new
            if csv:
                table.write_csv(csv, rows)
                write_text(options.out / "fused.md", table.markdown(rows))
                table.draw(rows, options.out / "fused.png")
    finally:
        progress.clear()
    return rows


def names(text: str) -> list[str]:
    return list(VARIANTS) if text == "all" else text.split(",")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("workloads", nargs="*", metavar="WORKLOAD", help=f"of {', '.join(WORKLOADS)} (default: all)")
    add("--B", type=int, nargs="+", default=[8], help="numbers of models (default 8)")
    add("--threads", type=int, default=1, help="CPU threads (default 1)")
    add(
        "--variants",
        type=names,
        default=DEFAULT,
        help="comma-separated, or `all` (default: all but the compiled ones, which take minutes to compile)",
    )
    add("--peer", action="append", default=[], metavar="MODULE:FUNCTION", help="a variant of your own")
    add("--rounds", type=int, default=7, help="in which each variant has its turn (default 7)")
    add("--warmup", type=int, default=8, help="steps before the first round (default 8)")
    add("--segment", type=float, default=0.3, help="seconds of a turn (default 0.3)")
    add("--out", type=Path, metavar="DIR", help="folder for fused.csv, fused.md and fused.png")
    add(
        "--markdown",
        type=Path,
        metavar="FILE",
        help=f"put the table between {table.BEGIN} and {table.END} in FILE",
    )
    add("--memory", action="store_true", help="peak memory instead of speed")
    options = parser.parse_args()
    options.workloads = options.workloads or list(WORKLOADS)
    options.variants = list(
        dict.fromkeys([table.BASE, *options.variants])
    )  # what the others are compared with
    if unknown := [n for n in options.workloads if n not in WORKLOADS]:
        parser.error(f"no workload {', '.join(unknown)}; there are {', '.join(WORKLOADS)}")
    if unknown := [n for n in options.variants if n not in VARIANTS]:
        parser.error(f"no variant {', '.join(unknown)}; there are {', '.join(VARIANTS)}")
    for name in ("threads", "rounds", "warmup"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1")
    if min(options.B) < 1:
        parser.error("--B must be at least 1")
    return options


def main() -> None:
    options = parse()
    sys.path.insert(0, str(Path.cwd()))  # where a --peer lives
    if options.memory:
        for workload in options.workloads:
            for B in options.B:
                print(fused_memory.line(workload, B, fused_memory.measured(workload, B)), flush=True)
        return
    torch.set_num_threads(options.threads)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
    rows = run(options)
    if options.markdown:
        table.put(table.markdown(rows), options.markdown)


if __name__ == "__main__":
    command.run(main, "workloads")
