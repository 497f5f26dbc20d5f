# SPDX-License-Identifier: MIT
"""B fine-tunings of one frozen base: heads on a backbone, LoRA adapters on language models built from configs.

Against an array stand: a loop over the adapters on one base, which is the strongest plain way (AdamW in one pass);
B processes, each with a base of its own; PEFT with B adapters in one model, each row of a wide batch with its own
(which PEFT allows in eval mode); for heads, the backbone run once by hand.

    python benchmarks/adapters.py [--models gpt2-768] [--quick] [--threads 2] [--memory] [--markdown FILE]

prints how many times faster than the loop each way is, by CPU time on one thread and wall time on more; with --memory
the peak of the resident set above that of the imports, each way in a fresh process, beside what one base and B times
what one model adds to it would take.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

import command
from adapter_ways import WORKLOADS, Size
from fresh_process import answer
from fused_table import speed
from setting import cpu_clock, machine
from ways import close, measure

from dnnsuite import _C
from dnnsuite._files import write_text
from dnnsuite.profiler.memory import begin_peak, level

QUICK = {"gpt2-768": [Size(1, 32)], "gpt2-256": [Size(1, 32), Size(4, 32)], "resnet18": [Size(8, 32)]}
_MEMORY_STEPS = 8
MIB = 2**20


def cases(options: argparse.Namespace) -> list[tuple[str, Size]]:
    """List the workloads and batches that were asked for."""
    names = options.models or tuple(QUICK if options.quick else WORKLOADS)
    sizes = {name: QUICK.get(name, WORKLOADS[name].sizes[:1]) if options.quick else WORKLOADS[name].sizes
             for name in names}  # fmt: skip
    return [(name, size) for name in names for size in sizes[name]]


def timed(name: str, size: Size, options: argparse.Namespace, progress: Any) -> dict[str, list[float]]:
    """Seconds of a step of one model, by way, a value per round."""
    made = {}
    clock = cpu_clock if options.threads == 1 else time.perf_counter
    try:
        for way, make in WORKLOADS[name].ways(options.B, size, options.threads).items():
            made[way] = make()
        return measure(made, options.B, options.rounds, 12, clock, segment_s=options.segment, progress=progress)
    finally:
        for way in made.values():
            close(way)


def peak_bytes(name: str, size: Size, way: str, B: int, threads: int) -> int:
    """Peak of the resident set of a fresh process that trains for some steps, above that of the imports."""
    what = f"{name}, {size}: the process that trains by {way}"
    found: int = answer(_train, name, size, way, B, threads, what=what)
    return found


def _train(connection: Any, name: str, size: Size, way: str, B: int, threads: int) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    workload = WORKLOADS[name]
    workload.ways(1, size, threads)["loop"]()(1)  # what is imported and set up once for all
    workload.small().ways(2, Size(1, 8), threads)[way]()(_MEMORY_STEPS)  # and for this way, as compiled steps
    gc.collect()
    _C.heap_release()  # free pages that were still held would hide what the way under test takes
    begin_peak("cpu")
    before = level("cpu")
    workload.ways(B, size, threads)[way]()(_MEMORY_STEPS)
    connection.send(level("cpu").peak - before.current)


def memory(name: str, size: Size, options: argparse.Namespace) -> str:
    """A row, in MiB: the base, the loop over one model and over B, the array, and the base with B times one model."""
    base = _base_bytes(name) / MIB
    one, loop, array = (
        peak_bytes(name, size, way, B, options.threads) / MIB
        for way, B in (("loop", 1), ("loop", options.B), ("dnnsuite", options.B))
    )
    limit = base + options.B * (one - base)
    return f"| {name} | {size} | {base:.0f} | {one:.0f} | {loop:.0f} | {array:.0f} | {limit:.0f} |"


def _base_bytes(name: str) -> int:
    base = WORKLOADS[name].base()
    return sum(tensor.nbytes for tensor in (*base.parameters(), *base.buffers()))


def row(name: str, size: Size, seconds: dict[str, list[float]]) -> str:
    """A row of the table: milliseconds of the loop, and how many times faster each other way is."""
    base = seconds["loop"]
    cells = [f"{1e3 * min(base):.2f}"]
    for way in ("backbone once", "processes", "peft, mixed batch", "dnnsuite"):
        found = speed(base, seconds[way]) if way in seconds else None
        cells.append("-" if found is None else f"{found.ratio:.2f} [{found.low:.2f}, {found.high:.2f}]")
    return f"| {name} | {size} | {' | '.join(cells)} |"


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--models", nargs="+", choices=tuple(WORKLOADS), help="default: all")
    made.add_argument("--quick", action="store_true", help="a batch or two of three models, two minutes")
    made.add_argument("--B", type=int, default=8, help="models (default 8)")
    made.add_argument("--threads", type=int, default=1, help="default 1, rated by CPU time")
    made.add_argument("--rounds", type=int, default=5, help="in which each way has its turn (default 5)")
    made.add_argument("--segment", type=float, default=0.3, help="seconds of a turn (default 0.3)")
    made.add_argument("--memory", action="store_true", help="peaks of memory in place of times")
    made.add_argument("--markdown", type=Path, help="write the table there, too, after each row that is finished")
    return made.parse_args(arguments)


TIMES = (
    "| base | batch | loop, ms | backbone once | processes | PEFT, mixed batch | dnnsuite |",
    "|---|---|---|---|---|---|---|",
)
PEAKS = (
    "| base | batch | base, MiB | loop of one, MiB | loop, MiB | dnnsuite, MiB | base + B x what one adds, MiB |",
    "|---|---|---|---|---|---|---|",
)


def main(arguments: Sequence[str] | None = None) -> None:
    warnings.simplefilter("ignore")
    options = parsed(arguments)
    torch.set_num_threads(options.threads)
    progress = command.Progress()
    clock = "CPU time" if options.threads == 1 else "wall time"
    what = (
        "peaks of memory above the imports"
        if options.memory
        else f"times as fast as the loop, {clock} of a step of one model"
    )
    lines = [
        f"B = {options.B}, threads: {options.threads}; {what}. {machine()}.",
        "",
        *(PEAKS if options.memory else TIMES),
    ]
    print("\n".join(lines), flush=True)
    for name, size in cases(options):
        progress.where = f"{name}, {size}"
        if options.memory:
            made = memory(name, size, options)
        else:
            made = row(name, size, timed(name, size, options, progress))
        progress.clear()
        print(made, flush=True)
        lines.append(made)
        if options.markdown is not None:
            write_text(options.markdown, "\n".join(lines) + "\n")


if __name__ == "__main__":
    command.run(main, "rows")
