# SPDX-License-Identifier: MIT
"""Lines about the steps and epochs of a run, in the form of SC20's tutorial or of TBD's two versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .._shown import metric
from .._shown import rate as shown_rate
from .log import Log

__all__ = ["LINES", "Lines", "Sc20Lines", "TbdPytorchLines", "TbdTf2Lines", "Window", "accuracies"]

Means = Mapping[str, float]


@dataclass(frozen=True)
class Window:
    """Steps between two looks at the losses.

    Attributes:
        epoch, iteration: those of the last step, from 0.
        steps: steps of an epoch, or of a validation.
        done: steps of the run so far.
        count: steps in the window.
        seconds, data_s: time they took, and the part of it spent waiting for data.
        items: items of all models and processes.
        means: means over this process's samples in the window.
    """

    epoch: int
    iteration: int
    steps: int
    done: int
    count: int
    seconds: float
    data_s: float
    items: float
    means: Means


class Lines:
    """Base of the forms in which a run's lines are written.

    Args:
        names: names of an array's models.
    """

    def __init__(self, log: Log, names: Sequence[str] = ()) -> None:
        self.log, self.names = log, names

    def of(self, number: int) -> str:
        """Return the name of a model, to begin its line; empty where there is one only."""
        return f"model {number} ({self.names[number]}): " if self.names else ""

    def trained(self, window: Window) -> None:
        """Print the line about steps of training."""

    def validated(self, window: Window) -> None:
        """Print the line about batches of a validation."""

    def ended(self, models: Sequence[int], trained: Sequence[Means], valid: Sequence[Means]) -> None:
        """Print the lines about the epoch that has ended, one per model."""
        for number, own, found in zip(models, trained, valid, strict=True):
            if "acc1" in found:
                self.log.info(f"{self.of(number)}train acc1={own['acc1']}, valid acc1={found['acc1']}")


class Sc20Lines(Lines):
    """`Epoch: 1, Iteration: 20, Avg img/sec: 680.5`."""

    def trained(self, window: Window) -> None:
        if window.iteration:  # a line for the first iteration would tell of one batch, and of what only starts
            rate = window.items / window.seconds
            self.log.info(f"Epoch: {window.epoch + 1}, Iteration: {window.iteration}, Avg img/sec: {rate}")


class TbdPytorchLines(Lines):
    """`Epoch: [0][  10/5005]`, tabs between meters: each the window's value, and in brackets the epoch's so far.

    Rates are items over time; the original averages rates, which overstates where steps differ.
    """

    def __init__(self, log: Log, names: Sequence[str] = ()) -> None:
        super().__init__(log, names)
        self._sums: dict[str, float] = {}

    def trained(self, window: Window) -> None:
        self._tell(f"Epoch: [{window.epoch}]", window, rate=True)

    def validated(self, window: Window) -> None:
        self._tell("Test: ", window, rate=False)

    def _tell(self, what: str, window: Window, rate: bool) -> None:
        if window.iteration < window.count:  # the first of an epoch, or of a validation
            self._sums = {}
        own = {"n": window.count, "seconds": window.seconds, "data_s": window.data_s, "items": window.items}
        own |= {name: value * window.items for name, value in window.means.items()}
        for name, value in own.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
        both = own, self._sums
        parts = [f"{what}[{window.iteration:{len(str(window.steps))}d}/{window.steps}]"]
        parts.append("Time {:6.3f} ({:6.3f})".format(*(each["seconds"] / each["n"] for each in both)))
        if rate:
            rates = (each["items"] / each["seconds"] for each in both)
            parts.append("Batch throughput {:6.3f} ({:6.3f}) samples/s".format(*rates))
            parts.append("Data {:6.3f} ({:6.3f})".format(*(each["data_s"] / each["n"] for each in both)))
        parts.append("Loss {:.4e} ({:.4e})".format(*(each["loss"] / each["items"] for each in both)))
        for k in (1, 5):
            if f"acc{k}" in own:
                shares = (100 * each[f"acc{k}"] / each["items"] for each in both)
                parts.append(f"Acc@{k} " + "{:6.2f} ({:6.2f})".format(*shares))
        self.log.plain("\t".join(parts))

    def ended(self, models: Sequence[int], trained: Sequence[Means], valid: Sequence[Means]) -> None:
        super().ended(models, trained, valid)
        for found in valid:
            self.log.plain(accuracies(found))


class TbdTf2Lines(Lines):
    """`TimeHistory: 12.34 seconds, 3112.45 examples/second between steps 100 and 200`."""

    def trained(self, window: Window) -> None:
        rate = window.items / window.seconds
        self.log.plain(
            f"TimeHistory: {window.seconds:.2f} seconds, {rate:.2f} examples/second between steps "
            f"{window.done - window.count} and {window.done}"
        )


class JobLines(Lines):
    """`Epoch 1, step 40 of 40: 6,333 samples/s, loss 0.1973`, and what a job's metric was on held-out data."""

    def trained(self, window: Window) -> None:
        rate = shown_rate(window.items / window.seconds, "samples/s")
        step = f"Epoch {window.epoch + 1}, step {window.iteration + 1} of {window.steps}"
        self.log.info(f"{step}: {rate}, loss {window.means['loss']:.4g}")

    def ended(self, models: Sequence[int], trained: Sequence[Means], valid: Sequence[Means]) -> None:
        for number, own, found in zip(models, trained, valid, strict=True):
            # Where there is a metric it stands for the loss, which other tensors than those of training may not have.
            kept = {name: value for name, value in found.items() if name != "loss"} or found
            held_out = ", ".join(f"{name} {metric(value)}" for name, value in kept.items())
            self.log.info(f"{self.of(number)}loss {metric(own['loss'])}; held out: {held_out}")


LINES = {"job": JobLines, "sc20": Sc20Lines, "tbd-pytorch": TbdPytorchLines, "tbd-tf2": TbdTf2Lines}


def accuracies(valid: Means) -> str:
    """` * Acc@1 76.130 Acc@5 92.862`, the last line of TBD's validation; the loss where there is no accuracy."""
    found = [f"Acc@{k} {100 * valid[f'acc{k}']:.3f}" for k in (1, 5) if f"acc{k}" in valid]
    told = " ".join(found) or f"Loss {valid['loss']:.4e}"
    return f" * {told}"
