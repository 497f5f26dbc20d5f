# SPDX-License-Identifier: MIT
"""A whole sweep with early stopping: an array that is refilled as trials end, against a loop over plain models.

24 trials (learning rate x weight decay x dropout) train on scikit-learn's digits, B at a time, in batches of 64 from a
DataLoader with its last, incomplete one; after each epoch every model is validated. A trial whose validation loss has
not improved for some epochs ends: the next one takes its place, and when none is left the array shrinks. All is
counted: building models, edits, recordings of steps, validation, the loader.

`dnnsuite.sweep` is the same search through the front door: queue, refill, early stopping, table and records are its.

The loop takes each batch through its models one after the other, so it pays for the loader once, too. Beside the loop
as most people write it stand torch's stronger settings: AdamW in one pass, and convolutions in channels-last order.

    python benchmarks/sweep.py [--models cnn mlp gru] [--width 8] [--rounds 3]

prints CPU milliseconds per model and epoch of one thread, and the ratio with its 95 % interval over rounds.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

import command
from fused_table import speed
from setting import cpu_clock

import dnnsuite
from dnnsuite import nn, optim
from dnnsuite.errors import Unavailable

BATCH = 64
FRONT_DOOR = "dnnsuite.sweep"
PATIENCE = 2  # epochs without an improvement of 1 %
Progress = Callable[[str], None]


class Cnn(torch.nn.Module):
    """Two convolutions with pooling."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(1, 16, 3, padding=1)
        self.second = torch.nn.Conv2d(16, 32, 3, padding=1)
        self.dropout = torch.nn.Dropout(dropout)
        self.classes = torch.nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.max_pool2d(torch.relu(self.first(x)), 2)
        x = torch.max_pool2d(torch.relu(self.second(x)), 2)
        logits: torch.Tensor = self.classes(self.dropout(x.flatten(1)))
        return logits


class Mlp(torch.nn.Module):
    """Two hidden layers of 64."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Flatten(),
            torch.nn.Linear(64, 64),
            torch.nn.ReLU(),
            torch.nn.Dropout(dropout),
            torch.nn.Linear(64, 64),
            torch.nn.ReLU(),
            torch.nn.Dropout(dropout),
            torch.nn.Linear(64, 10),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.body(x)
        return logits


class Gru(torch.nn.Module):
    """A recurrence over the rows of a picture."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.rows = torch.nn.GRU(8, 32, batch_first=True)
        self.dropout = torch.nn.Dropout(dropout)
        self.classes = torch.nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.rows(x.squeeze(1))
        logits: torch.Tensor = self.classes(self.dropout(hidden[:, -1]))
        return logits


MODELS: dict[str, type[torch.nn.Module]] = {"cnn": Cnn, "mlp": Mlp, "gru": Gru}


@dataclass(frozen=True)
class Trial:
    """One configuration of the sweep."""

    number: int
    lr: float
    weight_decay: float
    dropout: float

    def model(self, kind: str) -> torch.nn.Module:
        torch.manual_seed(self.number)
        return MODELS[kind](self.dropout)

    @property
    def values(self) -> dict[str, float]:
        return {"lr": self.lr, "weight_decay": self.weight_decay}


def trials() -> list[Trial]:
    grid = itertools.product((3e-3, 1e-3, 3e-4, 1e-4), (0.0, 1e-2), (0.0, 0.2, 0.4))
    return [Trial(number, *values) for number, values in enumerate(grid)]


@dataclass(frozen=True)
class Digits:
    """scikit-learn's digits: a loader of shuffled batches, and a held-out part."""

    loader: Any
    x: torch.Tensor
    y: torch.Tensor

    @classmethod
    def load(cls) -> Digits:
        """Raises Unavailable where scikit-learn is not installed."""
        try:
            from sklearn.datasets import load_digits
        except ImportError as error:
            raise Unavailable("scikit-learn, for its digits", "sklearn", "pip install scikit-learn") from error
        found = load_digits()
        x = torch.tensor(found.images, dtype=torch.float32).unsqueeze(1) / 16
        y = torch.tensor(found.target)
        train = torch.utils.data.TensorDataset(x[:1437], y[:1437])
        generator = torch.Generator().manual_seed(0)
        loader = torch.utils.data.DataLoader(train, BATCH, shuffle=True, generator=generator)
        return cls(loader, x[1437:], y[1437:])


class Way(Protocol):
    """A number of models that train side by side."""

    def epoch(self, data: Digits) -> list[float]:
        """Train an epoch; return the models' validation losses."""

    def replace(self, slot: int, trial: Trial) -> None:
        """Begin another trial in place of one that has ended."""

    def drop(self, slots: list[int]) -> None:
        """Go on without trials that have ended."""

    def close(self) -> None:
        """End it."""


class Loop:
    """Plain models, one after the other."""

    def __init__(self, kind: str, begun: Sequence[Trial], fused: bool = False, channels_last: bool = False) -> None:
        self._kind, self._fused = kind, fused or None  # None: torch's choice
        self._format = torch.channels_last if channels_last else torch.contiguous_format
        self._held = [self._made(trial) for trial in begun]

    def _made(self, trial: Trial) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        model = trial.model(self._kind).to(memory_format=self._format)  # type: ignore[call-overload]
        return model, torch.optim.AdamW(model.parameters(), **trial.values, fused=self._fused)

    def epoch(self, data: Digits) -> list[float]:
        for x, y in data.loader:
            x = x.contiguous(memory_format=self._format)
            for model, optimizer in self._held:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
        return [self._validated(model, data) for model, _ in self._held]

    @torch.no_grad()
    def _validated(self, model: torch.nn.Module, data: Digits) -> float:
        model.eval()
        loss = torch.nn.functional.cross_entropy(model(data.x), data.y).item()
        model.train()
        return loss

    def replace(self, slot: int, trial: Trial) -> None:
        self._held[slot] = self._made(trial)

    def drop(self, slots: list[int]) -> None:
        self._held = [one for slot, one in enumerate(self._held) if slot not in slots]

    def close(self) -> None:
        self._held.clear()


def losses(array: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(array(x), y)


class Refilled:
    """An array under a StepRunner."""

    def __init__(self, kind: str, begun: Sequence[Trial]) -> None:
        self._kind = kind
        self._array = dnnsuite.fuse([trial.model(kind) for trial in begun])
        values = {name: [trial.values[name] for trial in begun] for name in begun[0].values}
        self._optimizer = optim.AdamW(self._array.parameters(), **values)
        self._runner = dnnsuite.StepRunner(self._array, self._optimizer, losses, threads=1)

    def epoch(self, data: Digits) -> list[float]:
        B = self._array.B
        for x, y in data.loader:
            self._runner.step(dnnsuite.stack(x, B), dnnsuite.stack(y, B))
        self._runner.synchronize()
        return self._validated(data)

    @torch.no_grad()
    def _validated(self, data: Digits) -> list[float]:
        B = self._array.B
        self._array.eval()
        found: list[float] = losses(self._array, dnnsuite.stack(data.x, B), dnnsuite.stack(data.y, B)).tolist()
        self._array.train()
        return found

    def replace(self, slot: int, trial: Trial) -> None:
        self._array.replace(slot, trial.model(self._kind), self._optimizer, **trial.values)

    def drop(self, slots: list[int]) -> None:
        self._array.drop(slots, self._optimizer)

    def close(self) -> None:
        self._runner.close()


class Trials:
    """Early stopping: trials that train, each with its best loss and the epochs since then, and those to come."""

    def __init__(self, waiting: Sequence[Trial], width: int, epochs: int) -> None:
        self.epochs = epochs
        self._queue = list(waiting[width:])
        self.running = [[float("inf"), 0, 0] for _ in waiting[:width]]  # best loss, epochs since, epochs in all

    def end(self, way: Way, found: list[float]) -> None:
        """Take the losses of an epoch, and refill `way` or let it shrink where trials have ended."""
        gone = []
        for slot, (loss, state) in enumerate(zip(found, self.running, strict=True)):
            better = loss < 0.99 * state[0]
            state[:] = min(loss, state[0]), 0 if better else state[1] + 1, state[2] + 1
            if state[1] < PATIENCE and state[2] < self.epochs:
                continue
            if self._queue:
                way.replace(slot, self._queue.pop(0))
                state[:] = float("inf"), 0, 0
            else:
                gone.append(slot)
        if gone and len(gone) < len(self.running):
            way.drop(gone)
        self.running = [state for slot, state in enumerate(self.running) if slot not in gone]


def swept(make: Callable[[Sequence[Trial]], Way], data: Digits, width: int, epochs: int) -> float:
    """Run the whole sweep; return its CPU seconds per model and epoch."""
    begin, count = cpu_clock(), 0
    waiting = trials()
    progress = Trials(waiting, width, epochs)
    way = make(waiting[:width])
    while progress.running:
        count += len(progress.running)
        progress.end(way, way.epoch(data))
    way.close()
    return (cpu_clock() - begin) / count


def front_door(kind: str, data: Digits, width: int, epochs: int) -> float:
    """CPU seconds per model and epoch of the same sweep by `dnnsuite.sweep`, its files on disk counted too."""
    configs = [{**trial.values, "dropout": trial.dropout} for trial in trials()]
    with tempfile.TemporaryDirectory() as folder:
        begin = cpu_clock()
        found = dnnsuite.sweep(
            lambda config: MODELS[kind](config["dropout"]), configs, data.loader, evaluate=(data.x, data.y),
            epochs=epochs, patience=PATIENCE, min_delta=0.01, width=width, threads=1, out=folder, quiet=True,
        )  # fmt: skip
        return (cpu_clock() - begin) / found.epochs


def ways(kind: str) -> dict[str, Callable[[Sequence[Trial]], Way]]:
    found: dict[str, Callable[[Sequence[Trial]], Way]] = {
        "loop": lambda begun: Loop(kind, begun),
        "loop, fused AdamW": lambda begun: Loop(kind, begun, fused=True),
    }
    if kind == "cnn":
        found["and channels last"] = lambda begun: Loop(kind, begun, fused=True, channels_last=True)
    return found | {"dnnsuite": lambda begun: Refilled(kind, begun)}


def measure(kind: str, options: argparse.Namespace, data: Digits, progress: Progress) -> dict[str, list[float]]:
    """CPU seconds per model and epoch of each way, in turns, a value per round."""
    for make in ways(kind).values():  # what is imported and set up once for all
        first = make(trials()[:1])
        first.epoch(data)
        first.close()
    seconds: dict[str, list[float]] = {name: [] for name in ways(kind)}
    for number in range(options.rounds):
        for name, make in ways(kind).items():
            progress(f"{kind}, round {number + 1} of {options.rounds}, {name}")
            seconds[name].append(swept(make, data, options.width, options.epochs))
        progress(f"{kind}, round {number + 1} of {options.rounds}, {FRONT_DOOR}")
        seconds.setdefault(FRONT_DOOR, []).append(front_door(kind, data, options.width, options.epochs))
    return seconds


def report(kind: str, seconds: dict[str, list[float]]) -> list[str]:
    """Lines: the time of each way, and how many times faster the array is."""
    own = seconds["dnnsuite"]
    lines = [f"{kind:>4}  {'dnnsuite':<20} {1e3 * min(own):8.2f} ms per model and epoch"]
    for name, values in seconds.items():
        if name != "dnnsuite":
            found = speed(values, own)
            lines.append(
                f"{kind:>4}  {name:<20} {1e3 * min(values):8.2f} ms; dnnsuite is {found.ratio:.2f} "
                f"[{found.low:.2f}, {found.high:.2f}] times as fast"
            )
    return lines


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--models", nargs="+", choices=tuple(MODELS), default=tuple(MODELS))
    made.add_argument("--width", type=int, default=8, help="models at a time (default 8)")
    made.add_argument("--epochs", type=int, default=12, help="of a trial at most (default 12)")
    made.add_argument("--rounds", type=int, default=3, help="in which each way has its turn (default 3)")
    return made.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parsed(arguments)
    torch.set_num_threads(1)
    data, progress = Digits.load(), command.Progress()
    print(f"24 trials, {options.width} at a time, one thread, CPU time of the whole sweep", flush=True)
    for kind in options.models:
        seconds = measure(kind, options, data, progress)
        progress.clear()
        print("\n".join(report(kind, seconds)), flush=True)


if __name__ == "__main__":
    command.run(main, "sweeps")
