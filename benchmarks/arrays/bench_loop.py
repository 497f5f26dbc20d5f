# SPDX-License-Identifier: MIT
"""Training steps of models that an array cannot fuse, or gains little from, against a plain loop over the models.

    python benchmarks/arrays/bench_loop.py --models 8 --workloads gate spectral_norm --optimizer fused

One line per workload: how many times as fast as the loop an array is by hand (`array(x)`, `backward`, `opt.step()`)
and under a StepRunner of one thread, by CPU time; and what `coverage()` says of it. The loop trains plain torch models
one after the other with torch's optimizer: `adam` as torch runs it, `fused` Adam, or `sgd`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
from loop_workloads import WORKLOADS, Workload, losses_of

import dnnsuite
from dnnsuite import StepRunner, optim
from timing import interleaved

OPTIMIZERS: dict[str, tuple[Callable[..., torch.optim.Optimizer], Callable[..., optim.ArrayOptimizer]]] = {
    "adam": (lambda p: torch.optim.Adam(p, lr=1e-4), lambda p: optim.Adam(p, lr=1e-4)),
    "fused": (lambda p: torch.optim.Adam(p, lr=1e-4, fused=True), lambda p: optim.Adam(p, lr=1e-4)),
    "sgd": (lambda p: torch.optim.SGD(p, lr=1e-4), lambda p: optim.SGD(p, lr=1e-4)),
}
SETTLED = 40  # steps after which every choice by measurement is made


def loop(work: Workload, B: int, optimizer: str) -> Callable[[], None]:
    """Return a step of B plain models, one after the other."""
    models = work.models(B)
    x = work.batch(B)
    optimizers = [OPTIMIZERS[optimizer][0](model.parameters()) for model in models]

    def step() -> None:
        for model, own, part in zip(models, optimizers, x, strict=True):
            own.zero_grad()
            losses_of(model(part).unsqueeze(0)).sum().backward()
            own.step()

    return step


def by_hand(work: Workload, B: int, optimizer: str) -> tuple[dnnsuite.Array, Callable[[], None]]:
    """Return an array of B models and a step of it by hand."""
    array = dnnsuite.fuse(work.models(B))
    x, own = work.batch(B), OPTIMIZERS[optimizer][1](array.parameters())

    def step() -> None:
        own.zero_grad()
        losses_of(array(x)).sum().backward()
        own.step()

    return array, step


def by_runner(work: Workload, B: int, optimizer: str) -> tuple[dnnsuite.Array, StepRunner, Callable[[], None]]:
    """Return an array of B models, its runner, and a step of it."""
    array = dnnsuite.fuse(work.models(B))
    x, own = work.batch(B), OPTIMIZERS[optimizer][1](array.parameters())
    runner = StepRunner(array, own, lambda part, x: losses_of(part(x)), threads=1)
    return array, runner, lambda: runner.step(x).losses()


def described(array: dnnsuite.Array) -> str:
    """List the ways in which an array's parts run, with the first reason."""
    found = {cover.how: cover.reason for cover in array.coverage()}
    return "; ".join(f"{how} ({reason})" if reason else how for how, reason in found.items())


def measured(work: Workload, B: int, optimizer: str, rounds: int) -> Iterator[str]:
    """Yield the table's cells of one workload."""
    array, hand = by_hand(work, B, optimizer)
    dealt, runner, run = by_runner(work, B, optimizer)
    with runner:
        for _ in range(SETTLED):
            hand()
            run()
        timings = interleaved({"loop": loop(work, B, optimizer), "hand": hand, "run": run}, rounds, 0.05)
        base = timings["loop"].min_s
        yield f"{work.name:<18}"
        yield f"loop {base * 1e3:8.2f} ms"
        for name in ("hand", "run"):
            yield f"{name} {base / timings[name].min_s:5.2f}x"
        yield f"| {described(array)[:70]} | {runner.mode[:60]}: {described(dealt)[:60]}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=8)
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adam")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    for name in options.workloads:
        for cell in measured(WORKLOADS[name], options.models, options.optimizer, options.rounds):
            print(cell, end="  ", flush=True)
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
