# SPDX-License-Identifier: MIT
"""Training steps of B models of each workload: the fused array against every other way to train them, in one run.

    python benchmarks/fused.py mlp_s pointnet --B 1 8
    python benchmarks/fused.py --B 8 --threads 2 --out results --markdown docs/benchmarks.md
    python benchmarks/fused.py --roof --rounds 3 --markdown table.md --missing --minutes 20
    python benchmarks/fused.py resnet18 --variants all --out results
    python benchmarks/fused.py lstm gru --B 8 --roof
    python benchmarks/fused.py mlp_m --memory
    python benchmarks/fused.py --device cuda --amp bf16 --out results/gpu

The variants take turns in every round, so that whatever drifts drifts for all. Speeds are relative to `serial`, with
the 95 % interval over rounds; milliseconds are the median of a step of one model. With one thread CPU time is counted,
with several, and on a GPU, wall time, from an idle device to an idle device. StepRunner has the process keep its free
memory, so on a CPU all variants but `concurrent` gain by that.

variants:
  serial                torch, one model after the other
  serial+fused_adam     the same with torch's fused Adam
  serial+channels_last  the same, and convolutions in channels-last order
  serial+compile        the loss under torch.compile, fused Adam
  serial+autotuned      the loss under torch.compile(mode="max-autotune"), fused Adam (a GPU only)
  serial+graph          each model's whole step as a CUDA graph, fused Adam (a GPU only)
  serial+graph+streams  the same, each model's on a stream of its own (a GPU only)
  concurrent            B processes that share the threads; a GPU they share by turns, each with fused Adam
  concurrent+mps        the same through an MPS daemon that is started for it (a GPU only)
  hfta                  HFTA's operators and Adam (needs its package: a checkout in PYTHONPATH)
  vmap                  torch.func over stacked models
  vmap+compile          the same under torch.compile
  vmap+compile+graph    the same with mode="reduce-overhead" (a GPU only)
  jax                   a jitted step of each model, one after the other, where JAX is installed (some workloads, CPU)
  jax+vmap              one jitted step of all models
  dnnsuite              the fused array, run by StepRunner; on a GPU as a CUDA graph

`--amp` has every variant under torch.autocast, with a GradScaler for fp16. Compare runs of one machine only.
`--out DIR` has fused.csv (every round), fused.md and fused.png, all written anew after each workload, as is the table
that `--markdown FILE` puts into FILE (without `--out` its rounds are in a .csv beside FILE). What is there of other
workloads stays in the table, so that it can be filled in pieces: `--missing` measures what it lacks, `--minutes N`
begins no further workload after N minutes, Ctrl-C loses the one under way, and the last line says what remains. With
`--rounds 3 --segment 0.2`, all plain variants and `--roof` a workload takes 15 to 30 s of a free core (MLPs, cnn, gru,
deq, tabular_resnet) or about a minute (mobilenets, swin, vit, language models), all of them a quarter of an hour; a
compiled variant adds minutes. `--peer MODULE:FUNCTION`
adds a variant of your own: a function (B, workload) that returns one that trains one step of all B models; `workload`
has `make()`, `batch()` and `loss`.

`--roof` adds the share of its roof that the array's step reaches. The roof is the least time that this machine needs
for the operators of a plain step: arithmetic at the peak of matrix products, or bytes at the bandwidth of the nearest
memory that holds them, the longer of the two. The peaks are measured first, and a matrix product has its turn in every
round: as much as it takes longer there than at the peak, the roof is lengthened, since neighbours take from both. It
prints which operators of the array lose the most against roofs of their own; the table names them where the share is
below 0.75.

`--memory` prints the peak memory of 24 steps instead of speed: the array against B models in one process, and against
B processes of one model. On a GPU that is what torch's allocator gave out, and what it held; each process has a CUDA
context besides.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import command
import fused_memory
import fused_table as table
import step_roof
import torch
import ways
from command import Progress
from fused_table import Row
from setting import PRECISIONS, Setting, device_name
from setting import machine as machine_line
from variants import COMPILED, VARIANTS, Variant, peer, variants_of
from with_hfta import NoOperator
from workloads import WORKLOADS

from dnnsuite._files import write_text
from dnnsuite.errors import Error, InvalidArgument
from dnnsuite.profiler.roofline import Peaks


def measure(
    workload: str, B: int, makers: dict[str, Variant], options: argparse.Namespace, progress: Progress
) -> tuple[ways.Seconds, dict[str, str]]:
    """Seconds of a model's step of every variant that can run, and of the others the reason."""
    setting: Setting = options.setting
    notes: dict[str, str] = {}
    with ExitStack() as undo:
        ready: dict[str, ways.Way] = {}
        for name, make in makers.items():
            progress(f"building {name}")
            try:
                way = make(WORKLOADS[workload], B, setting)
                undo.callback(ways.close, way)
                way(2)
            except Exception as error:  # a variant that refuses one workload must not cost the others' rates
                notes[name] = _reason(error)
            else:
                ready[name] = way
        if options.roof:
            ready[table.ROOF] = step_roof.product(setting)
        seconds = ways.measure(
            ready, B, options.rounds, options.warmup, setting.clock, segment_s=options.segment, progress=progress
        )
    torch.compiler.reset()
    return seconds, notes


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, (Error, NoOperator)) else f"{type(error).__name__}: {text[:150]}"


def add_roof(
    workload: str, B: int, seconds: ways.Seconds, notes: dict[str, str], peaks: Peaks, options: argparse.Namespace
) -> None:
    """Put the roof of a step in the place of the product's seconds; below `NEAR` a note says where the time goes."""
    product_s = [B * value for value in seconds.pop(table.ROOF)]
    try:
        least_s = step_roof.least_seconds(WORKLOADS[workload], options.setting, peaks)
        seconds[table.ROOF] = step_roof.paced(least_s, product_s, peaks)
        if table.OWN not in seconds:
            return
        found = step_roof.gaps(WORKLOADS[workload], B, options.setting, peaks)
    except Exception as error:
        notes[table.ROOF] = _reason(error)
        return
    print("\n".join(step_roof.lines(found)), flush=True)
    if table.share(seconds[table.OWN], seconds[table.ROOF]) < step_roof.NEAR:
        notes[table.ROOF] = step_roof.sentence(found)


def show(workload: str, B: int, seconds: ways.Seconds, notes: dict[str, str]) -> None:
    print(f"{workload}, B={B}")
    for name, values in seconds.items():
        ratio = ""
        if table.BASE in seconds:
            speed = table.speed(seconds[table.BASE], values)
            ratio = f"{speed.ratio:6.2f}x [{speed.low:.2f}, {speed.high:.2f}]"
        print(f"{name:>22}  {1e3 * statistics.median(values):9.3f} ms  {ratio}", flush=True)
    for name, note in notes.items():
        if name not in seconds:
            print(f"{name:>22}  left out: {note}", flush=True)


class Table:
    """Rounds on disk and what is made of them; without a place for them, rounds of this run alone."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Raises Error for rounds of another machine, and for a FILE without a place for the table."""
        self.out, self.file = options.out, options.markdown
        self.csv: Path | None = options.out and options.out / "fused.csv"
        if self.file is not None:
            self.csv = self.csv or self.file.with_suffix(".csv")
            table.check_place(self.file)
        self.machine = machine_line()
        self.rows = table.read_csv(self.csv) if self.csv else []
        if others := {row.machine for row in self.rows} - {self.machine}:
            raise Error(f"{self.csv} is of another machine ({', '.join(others)}): give --out a folder of its own")

    def has(self, group: table.Group, variants: list[str]) -> bool:
        """True if each of `variants` was measured, or has a reason why not."""
        return {row.variant for row in self.rows if row.group == group}.issuperset(variants)

    def put(self, group: table.Group, seconds: ways.Seconds, notes: dict[str, str]) -> None:
        """Take the rounds of a workload in place of those before, and write all anew."""
        others = [row for row in self.rows if row.group != group]
        self.rows = others + table.rows_of(group, seconds, notes, self.machine)
        if self.csv:
            table.write_csv(self.csv, self.rows)
        if self.out:
            write_text(self.out / "fused.md", table.markdown(self.rows))
            table.draw(self.rows, self.out / "fused.png")
        if self.file:
            table.put(table.markdown(self.rows), self.file)


def run(options: argparse.Namespace) -> list[Row]:
    """Measures what is asked for, in the time that there is, and keeps what is on disk up to date."""
    makers = {name: VARIANTS[name] for name in options.variants} | {name: peer(name) for name in options.peer}
    found, progress, begin = Table(options), Progress(), time.monotonic()
    wanted = [*makers, *([table.ROOF] if options.roof else [])]
    groups = [table.Group(options.setting, B, name) for name in options.workloads for B in options.B]
    left = [group for group in groups if not (options.missing and found.has(group, wanted))]
    if not left:
        return found.rows
    peaks = step_roof.peaks_now(options.setting, progress) if options.roof else None
    count = len(left)
    try:
        while left and time.monotonic() - begin < 60 * options.minutes:
            _, B, workload = group = left[0]
            since = time.monotonic()
            progress.where = f"[{count - len(left) + 1}/{count}] {workload}, B={B}"
            seconds, notes = measure(workload, B, makers, options, progress)
            progress.clear()
            if peaks:
                add_roof(workload, B, seconds, notes, peaks, options)
            show(workload, B, seconds, notes)
            found.put(group, seconds, notes)
            left.pop(0)
            print(f"{'':>22}  took {time.monotonic() - since:.0f} s", flush=True)
    finally:
        progress.clear()
        if left:
            names = ", ".join(f"{group.workload} (B={group.B})" for group in left)
            print(f"remaining: {names}; --missing measures what the table lacks", flush=True)
    return found.rows


def chosen(asked: str, setting: Setting) -> list[str]:
    """Serial is always among them: it is what the others are compared with."""
    every = variants_of(setting)
    if asked == "default":
        every = [name for name in every if name not in COMPILED]
    return list(dict.fromkeys([table.BASE, *(every if asked in ("all", "default") else asked.split(","))]))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("workloads", nargs="*", metavar="WORKLOAD", help=f"of {', '.join(WORKLOADS)} (default: all)")
    add("--B", type=int, nargs="+", default=[8], help="numbers of models (default 8)")
    add("--threads", type=int, default=1, help="CPU threads (default 1)")
    add("--device", default="cpu", help="cpu (default), cuda or cuda:NUMBER")
    add("--amp", choices=PRECISIONS[1:], help="products in 16 bits, by torch.autocast (default: fp32)")
    add(
        "--variants",
        default="default",
        help="comma-separated, or `all` (default: all but the compiled ones, which take minutes to compile)",
    )
    add("--peer", action="append", default=[], metavar="MODULE:FUNCTION", help="a variant of your own")
    add("--rounds", type=int, default=7, help="in which each variant has its turn (default 7)")
    add("--warmup", type=int, default=8, help="steps before the first round (default 8)")
    add("--segment", type=float, default=0.3, help="seconds of a turn (default 0.3)")
    add("--out", type=Path, metavar="DIR", help="folder for fused.csv, fused.md and fused.png")
    add("--markdown", type=Path, metavar="FILE", help=f"put the table between {table.BEGIN} and {table.END} in FILE")
    add("--missing", action="store_true", help="measure only what the table on disk lacks")
    add("--minutes", type=float, default=math.inf, help="begin no further workload after so many (default: all)")
    add("--roof", action="store_true", help="the share of the roof, and which operators hold the rest")
    add("--memory", action="store_true", help="peak memory instead of speed")
    return checked(parser.parse_args(), parser)


def checked(options: argparse.Namespace, parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Fill in defaults and the setting; end with a message if an option is wrong."""
    options.workloads = options.workloads or list(WORKLOADS)
    try:
        options.setting = Setting(options.threads, device_name(options.device), options.amp or "fp32")
    except InvalidArgument as error:
        parser.error(str(error))
    options.variants = chosen(options.variants, options.setting)
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
    options.setting.enter()
    if options.memory:
        for workload in options.workloads:
            for B in options.B:
                for line in fused_memory.lines(workload, B, options.setting):
                    print(line, flush=True)
        return
    torch.set_num_threads(options.threads)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
    run(options)


if __name__ == "__main__":
    command.run(main, "workloads")
