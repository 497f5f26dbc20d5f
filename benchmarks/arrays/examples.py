# SPDX-License-Identifier: MIT
"""Time the scripts in examples/ as they are, and with their models trained one after the other.

python benchmarks/arrays/examples.py [NAME ...] [--rounds 3]

Both ways take turns, with one thread, by CPU time: of the call of `dnnsuite.sweep`, or of a StepRunner's steps. One
after the other means `mode="serial"` of a sweep; instead of a StepRunner it means plain torch models with torch's own
optimizers in a loop. The least of the rounds counts.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import runpy
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch

import dnnsuite

EXAMPLES = Path(__file__).parents[2] / "examples"
SWEEPS = ("sweep_digits", "sweep_bert", "sweep_lightning", "sweep_optuna")
RUNNERS = ("torchvision_model", "adapters_digits")


class Loop:
    """Stand-in for a StepRunner that trains the array's models one after the other, by cross-entropy."""

    def __init__(self, array: Any, optimizer: Any, loss: Any, **_: Any) -> None:
        self.models = dnnsuite.unfuse(array)
        self.optimizers = [
            optimizer.to_model(i, [each for each in model.parameters() if each.requires_grad])
            for i, model in enumerate(self.models)
        ]

    def __enter__(self) -> Loop:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def step(self, *batch: Any) -> Loop:
        """Train a step of each model on its part of (inputs, labels), or of one tuple of both."""
        inputs, labels = batch[0] if len(batch) == 1 else batch
        losses = []
        for model, optimizer, x, y in zip(self.models, self.optimizers, inputs, labels, strict=True):
            optimizer.zero_grad()
            losses.append(torch.nn.functional.cross_entropy(model(x), y))
            losses[-1].backward()
            optimizer.step()
        self._losses = torch.stack(losses).detach()
        return self

    def losses(self) -> torch.Tensor:
        """Return the last step's losses `[B]`."""
        return self._losses


def seconds(name: str, in_array: bool) -> float:
    """Run an example; return the CPU time of its training."""
    spent = [0.0]

    @contextlib.contextmanager
    def counted() -> Iterator[None]:
        begin = time.process_time()
        yield
        spent[0] += time.process_time() - begin

    sweep, kind = dnnsuite.sweep, dnnsuite.StepRunner if in_array else Loop

    def timed_sweep(*arguments: Any, **options: Any) -> Any:
        fixed = {"mode": "hfta" if in_array else "serial", "threads": 1, "out": False, "quiet": True}
        with counted():
            return sweep(*arguments, **{**options, **fixed})

    class Timed(kind):  # type: ignore[valid-type,misc]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            with counted():
                super().__init__(*arguments, **{**options, "threads": 1})

        def step(self, *batch: Any) -> Any:
            with counted():
                return super().step(*batch)

    with mock.patch.multiple(dnnsuite, sweep=timed_sweep, StepRunner=Timed), _silent_in_a_folder():
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    return spent[0]


@contextlib.contextmanager
def _silent_in_a_folder() -> Iterator[None]:
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def measure(name: str, rounds: int, once: Callable[[str, bool], float] = seconds) -> tuple[float, float]:
    """Return the least CPU seconds (as an array, one model after the other), measured in turns."""
    pairs = [(once(name, True), once(name, False)) for _ in range(rounds)]
    return min(array for array, _ in pairs), min(loop for _, loop in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = (*SWEEPS, *RUNNERS)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(known)}; all by default")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each way (default 3)")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"no example {unknown[0]!r} to time; there is {', '.join(known)}")
    torch.set_num_threads(1)
    print("example            array, s  one after the other, s  faster")
    for name in options.names or known:
        array, loop = measure(name, options.rounds)
        print(f"{name:18} {array:8.2f}  {loop:22.2f}  {loop / array:6.1f}", flush=True)


if __name__ == "__main__":
    main()
