# SPDX-License-Identifier: MIT
"""What the records of a sweep cost beside its training, of trials so tiny that this is the most that it can be.

Each trial is a perceptron of 4, 8 and 2 units that trains for three epochs of two batches. A sweep with a directory
and one without take turns (A B B A ...), for each algorithm; the ratio is of the time that the directory adds to the
time of the sweep without one.

    python benchmarks/sweep.py records [--trials 400] [--rounds 5]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

import command
from setting import cpu_clock

import dnnsuite
from dnnsuite.tuning import PBT, Algorithm, Hyperband, LogUniform, Random

EPOCHS = 3


def model(config: dict[str, float]) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))


def seconds_of(algorithm: Algorithm, epochs: int, recorded: bool) -> tuple[float, float]:
    """Run a sweep; return its seconds of CPU time and of the clock."""
    x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        cpu_s, wall_s = cpu_clock(), time.perf_counter()
        dnnsuite.sweep(
            model, {"lr": LogUniform(1e-3, 1e-1)}, (x, y), batch_size=32, evaluate=(x, y), epochs=epochs,
            algorithm=algorithm, threads=1, out=f"{folder}/out" if recorded else False, quiet=True,
        )  # fmt: skip
        return cpu_clock() - cpu_s, time.perf_counter() - wall_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--trials", type=int, default=400, help="of a random search (default 400)")
    parser.add_argument("--rounds", type=int, default=5, help="in which each has its turn (default 5)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    searches = {
        "random": (lambda: Random(options.trials), EPOCHS),
        "hyperband": (lambda: Hyperband(), 9),
        "population": (lambda: PBT(population=16, interval=2), 8),
    }
    print("| search | without records, s | CPU time added | low to high | time added |\n|---|---:|---:|---:|---:|")
    for name, (algorithm, epochs) in searches.items():
        seconds_of(algorithm(), epochs, True)  # what is imported and measured once
        found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
        for turn in range(options.rounds):
            for recorded in (False, True) if turn % 2 == 0 else (True, False):
                found[recorded].append(seconds_of(algorithm(), epochs, recorded))
        added = [[b[clock] / a[clock] - 1 for a, b in zip(found[False], found[True], strict=True)] for clock in (0, 1)]
        cpu, wall = (statistics.median(each) for each in added)
        alone_s = statistics.median(a[0] for a in found[False])
        spread = f"{min(added[0]):.1%} to {max(added[0]):.1%}"
        print(f"| {name} | {alone_s:.2f} | {cpu:.1%} | {spread} | {wall:.1%} |", flush=True)


if __name__ == "__main__":
    command.run(main, "rows")
