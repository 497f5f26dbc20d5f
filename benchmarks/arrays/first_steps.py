# SPDX-License-Identifier: MIT
"""Cost of a new StepRunner: its first steps, the dearest of the first 20, and all its steps up to the 3rd, 20th and
100th, beside a plain loop's; and the cost of an edit of its array, and of another shape of batch.

    python benchmarks/arrays/first_steps.py [--models cnn mlp gru] [--B 8] [--rounds 3]

The models and the batches are those of the sweep (`benchmarks/sweep.py`). Each round is a fresh process that knows no
choice by measurement: it times a loop over plain models, the first runner, and a later one of equal models, all from
the making of the runner on; models, arrays and optimizers are made before. Then models of a third runner's array are
replaced and dropped, and its batch has another shape. What torch sets up once for a process is behind it, for all of
them. CPU time of one thread, the least of the rounds for each number.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

import command
from fresh_process import answer
from sweep import BATCH, MODELS, losses

import dnnsuite
from dnnsuite import optim

STEPS = 100
STEADY = 20  # steps at the end whose median is the steady step
EDITS = 3  # models that are replaced, one after the other
Step = Callable[[], object]


def timed(make: Callable[[], Step], steps: int = STEPS) -> list[float]:
    """CPU seconds of each step; the first one has the making of what makes them."""
    begin = time.process_time()
    step, found = make(), []
    for _ in range(steps):
        step()
        now = time.process_time()
        found.append(now - begin)
        begin = now
    return found


def loop(kind: str, B: int, batch: tuple[torch.Tensor, torch.Tensor]) -> Callable[[], Step]:
    """Return the maker of a step of B plain models, one after the other."""
    models = [MODELS[kind](0.2) for _ in range(B)]
    optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True) for model in models]
    x, y = batch

    def step() -> None:
        for model, optimizer in zip(models, optimizers, strict=True):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

    return lambda: step


def runner(kind: str, B: int, batch: tuple[torch.Tensor, torch.Tensor]) -> Callable[[], Step]:
    """Return the maker of a StepRunner's step of as many."""
    return runner_of([MODELS[kind](0.2) for _ in range(B)], batch)


def runner_of(models: Sequence[torch.nn.Module], batch: tuple[torch.Tensor, torch.Tensor]) -> Callable[[], Step]:
    """Return the maker of a StepRunner's step of these models."""
    B, array = len(models), dnnsuite.fuse(list(models))
    optimizer = optim.AdamW(array.parameters(), lr=1e-3)
    x, y = (dnnsuite.stack(part, B) for part in batch)

    def make() -> Step:
        made = dnnsuite.StepRunner(array, optimizer, losses, threads=1)
        return lambda: made.step(x, y)

    return make


def edits(kind: str, B: int, batch: tuple[torch.Tensor, torch.Tensor]) -> dict[str, list[float]]:
    """CPU seconds of edits, of steps after them, and of the first step of another shape of batch."""
    array = dnnsuite.fuse([MODELS[kind](0.2) for _ in range(B)])
    optimizer = optim.AdamW(array.parameters(), lr=1e-3)
    made = dnnsuite.StepRunner(array, optimizer, losses, threads=1)
    x, y = (dnnsuite.stack(part, B) for part in batch)
    small = [dnnsuite.stack(part[: BATCH // 4], B) for part in batch]
    timed(lambda: lambda: made.step(x, y), STEPS // 2)
    found = {"other shape": timed(lambda: lambda: made.step(*small), 3)}
    models = iter([MODELS[kind](0.2) for _ in range(EDITS)])
    timed(lambda: lambda: made.step(x, y), 2)
    for slot in range(EDITS):
        edit = partial(array.replace, slot, next(models), optimizer)
        found["replace"] = fewest(found.get("replace"), timed(lambda edit=edit: edit, 1))
        found["after replace"] = fewest(found.get("after replace"), timed(lambda: lambda: made.step(x, y), 3))
    found["drop"] = timed(lambda: lambda: array.drop(B // 2, optimizer), 1)
    x, y = (dnnsuite.stack(part, B - 1) for part in batch)
    found["after drop"] = timed(lambda: lambda: made.step(x, y), 3)
    return found


def fewest(before: list[float] | None, now: list[float]) -> list[float]:
    """The lesser of two times of each step."""
    return now if before is None else list(map(min, before, now))


def ask(connection: Any, kind: str, B: int) -> None:
    """Send the times of the loop, the first runner, a later one and an edited array."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DNNSUITE_CACHE"] = folder
        torch.set_num_threads(1)
        torch.manual_seed(0)
        batch = torch.rand(BATCH, 1, 8, 8), torch.randint(10, (BATCH,))
        timed(loop(kind, 1, batch), 3)
        linear = [torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)) for _ in range(2)]
        timed(runner_of(linear, batch), 4)
        connection.send(
            {
                "loop": timed(loop(kind, B, batch)),
                "first runner": timed(runner(kind, B, batch)),
                "later runner": timed(runner(kind, B, batch)),
                **edits(kind, B, batch),
            }
        )


def least(rounds: Sequence[dict[str, list[float]]]) -> dict[str, list[float]]:
    """The least time of each step."""
    return {way: [min(times) for times in zip(*(r[way] for r in rounds), strict=True)] for way in rounds[0]}


def report(kind: str, found: dict[str, list[float]]) -> list[str]:
    """Lines: ms of the first three steps and of the steady one, ms up to the 3rd, 20th and 100th step, and the dearest
    of the first 20."""
    lines, steady = [], 1.0
    for way, times in found.items():
        if len(times) == STEPS:
            steady = sorted(times[-STEADY:])[STEADY // 2]  # what edits are compared with, too: a later runner's
        first = "  ".join(f"{1e3 * value:6.2f}" for value in times[:3])
        ratios = "  ".join(f"{value / steady:4.1f}" for value in times[:3])
        line = f"{kind:>4}  {way:<13} first steps {first} ms = {ratios} steady ones of {1e3 * steady:6.2f} ms"
        if len(times) == STEPS:
            totals = "  ".join(f"{1e3 * sum(times[:count]):7.1f}" for count in (3, 20, STEPS))
            line += f"; 3, 20, {STEPS} steps {totals} ms; dearest {1e3 * max(times[:20]):.1f} ms"
        lines.append(line)
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--models", nargs="+", choices=tuple(MODELS), default=tuple(MODELS))
    made.add_argument("--B", type=int, default=8, help="models of an array (default 8)")
    made.add_argument("--rounds", type=int, default=3, help="fresh processes (default 3)")
    options = made.parse_args(arguments)
    for kind in options.models:
        rounds = [answer(ask, kind, options.B, what=kind) for _ in range(options.rounds)]
        print("\n".join(report(kind, least(rounds))), flush=True)


if __name__ == "__main__":
    command.run(main, "models")
