# SPDX-License-Identifier: MIT
"""Operators of dnnsuite against their peers: time, GFLOP/s, GB/s, and the share of this machine's measured roofline.

    python benchmarks/ops/run.py --list
    python benchmarks/ops/run.py layer_norm linear --models 8
    python benchmarks/ops/run.py --out results
    python benchmarks/ops/run.py --device cuda --out results/gpu

One thread, CPU time, the variants of a case in turns. Operations and bytes are counted from shapes
(benchmarks/lib/work.py), the roofs are those of `dnnsuite roofline`, for one thread; more than 100 % of one is reached
where operands were in a nearer cache, or where neighbours had a part of the machine while the roof was measured.
On a GPU the time is that between CUDA events around many calls, launches included, and the roofs are those of its
matrix products (no TF32) and of a triad in its L2 cache and its memory; what cannot run there is left out, with why.
`--out DIR` has ops.csv and ops.md, written anew after each case. Each bench_<name>.py is a command of its own, too.
"""

from __future__ import annotations

import csv
import importlib
import sys
from collections.abc import Iterable
from dataclasses import asdict, fields
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
import command
import setting

import timing
from dnnsuite._files import replacing, write_text
from timing import Rate

NAMES = sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))


def write_csv(path: Path, rates: Iterable[Rate]) -> None:
    with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Rate)])
        writer.writeheader()
        writer.writerows(asdict(rate) for rate in rates)


def markdown(cases: list[list[Rate]], footer: str) -> str:
    """A line for each case: what ours reached, and how many times as fast as each peer it is."""
    lines = [
        "| operator | shape | µs | GFLOP/s | GB/s | of the roof | times as fast as |",
        "|---|---|---|---|---|---|---|",
    ]
    for own, *peers in cases:
        form = own.variant.removeprefix("own").strip()
        ratios = ", ".join(f"{peer.variant} {peer.ratio:.2f}" for peer in peers)
        lines.append(
            f"| {own.name} | {own.shape}{form and ', '}{form} | {own.us:.1f} | {own.gflop_per_s:.1f} | "
            f"{own.gb_per_s:.1f} | {own.roof_pct:.0f} % ({own.bound}) | {ratios} |"
        )
    return "\n".join([*lines, "", footer]) + "\n"


def main() -> None:
    parser = timing.parser(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="operators (default: all)")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for ops.csv and ops.md")
    options = parser.parse_args()
    if options.list:
        print("\n".join(NAMES))
        return
    if unknown := [name for name in options.names if name not in NAMES]:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(NAMES)}")
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
    place, found = timing.start(options.device), []
    footer = f"{place.clock}, least of the rounds; {timing.roofs(place)}. {setting.machine()}."
    for name in options.names or NAMES:
        cases = importlib.import_module(f"bench_{name}").cases
        for rates in timing.run(cases, options.models, place, options):
            found.append(rates)
            if options.out:
                write_csv(options.out / "ops.csv", (rate for case in found for rate in case))
                write_text(options.out / "ops.md", markdown(found, footer))


if __name__ == "__main__":
    command.run(main, "cases")
