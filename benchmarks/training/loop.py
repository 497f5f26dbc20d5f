# SPDX-License-Identifier: MIT
"""Cost of the loop of `dnnsuite.training` over a bare loop written by hand: `python benchmarks/training/loop.py`.

Both train the same ResNet-50 of SC20 (an eighth of the width by default) on the same batches, and validate. CPU time of
an epoch on one thread, the two in turn, the least of several rounds; prints both and the ratio.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from dnnsuite import training
from dnnsuite.training.lines import Log
from dnnsuite.training.loop import Loop
from dnnsuite.training.processes import Processes


def settings(width: int, batch_size: int, steps: int) -> training.Settings:
    """A configuration of so many steps."""
    keys = {
        "width": width,
        "batch_size": batch_size,
        "max_epochs": 1,
        "max_iters_per_epoch": steps,
        "max_valid_samples": batch_size,
        "num_data_workers": 0,
        "data": "synthetic",
        "enable_extra_opts": True,
        "save_checkpoint": False,
    }
    return training.Settings().changed(keys)


def by_hand(experiment: training.Experiment) -> Callable[[], None]:
    """An epoch with nothing but training, a running loss and accuracy, and validation."""
    data, order = experiment.data, experiment.order
    model = experiment.model()
    optimizer = experiment.optimizer(model.parameters())

    def epoch() -> None:
        model.train()
        total, right = torch.zeros(()), torch.zeros((), dtype=torch.int64)
        for batch in order.batches(0):
            images, labels = data.train.batch(batch, 0)
            optimizer.zero_grad()
            scores = model(images)
            loss = cross_entropy(scores, labels)
            loss.backward()
            optimizer.step()
            total += loss.detach()
            right += (scores.argmax(1) == labels).sum()
        model.eval()
        with torch.no_grad():
            images, labels = data.valid.batch(range(len(data.valid)), 0)
            scores = model(images)
            float(cross_entropy(scores, labels)), int((scores.argmax(1) == labels).sum())
        float(total), int(right)

    return epoch


def by_loop(experiment: training.Experiment, folder: Path, between: Callable[[], None]) -> list[float]:
    """CPU seconds of each epoch of the package's loop, with its log and metrics.csv; `between` is called after each."""
    loop = Loop(experiment, Processes("cpu"), folder, Log(folder))
    seconds: list[float] = []
    began_s = time.process_time()

    def after_epoch() -> None:
        nonlocal began_s
        seconds.append(time.process_time() - began_s)
        between()
        began_s = time.process_time()

    loop.after_epoch = after_epoch
    loop.run()
    return seconds


def measure(width: int, batch_size: int, steps: int, rounds: int) -> tuple[float, float]:
    """(by hand, by the loop): the least CPU seconds of an epoch; the first of each is left out."""
    torch.set_num_threads(1)
    asked = settings(width, batch_size, steps).changed({"max_epochs": rounds + 1})
    experiment = training.experiment_of("loop", asked, training.find_data(asked), "cpu")
    epoch, hand = by_hand(experiment), list[float]()

    def timed() -> None:
        began_s = time.process_time()
        epoch()
        hand.append(time.process_time() - began_s)

    with tempfile.TemporaryDirectory() as folder:
        loop = by_loop(experiment, Path(folder), timed)
    return min(hand[1:]), min(loop[1:])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    hand, loop = measure(options.width, options.batch_size, options.steps, options.rounds)
    print(f"by hand {hand:.4f} s, loop {loop:.4f} s per epoch: {100 * (loop / hand - 1):+.2f} %")


if __name__ == "__main__":
    main()
