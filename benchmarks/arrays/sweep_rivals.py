# SPDX-License-Identifier: MIT
"""The same search by a loop, by processes, by Optuna with processes, and by `dnnsuite.sweep`: time to the same table.

Four workloads: a CNN on scikit-learn's digits, an MLP on tabular data, a GRU over the rows of the digits, a tiny BERT
with padded masks. Two searches of each: 24 configurations for 8 epochs, and Hyperband with R = 27, whose survivors go
on in all ways but Optuna's, which prunes as it goes and trains another number of epochs: its time is that of as many
epochs as the table has. A way trains, validates after each epoch and keeps the history; dnnsuite writes its records.
The others' optimizer is torch's AdamW in one pass (`fused=True`), which is faster than its default.

    python benchmarks/sweep.py rivals [--models cnn mlp gru bert] [--searches random hyperband] [--rounds 2]

prints CPU seconds over all processes, each with one thread, without their start, and how many times as fast as the best
of the others dnnsuite is. CPU time is what a machine whose cores are all busy has to give; each way has the same cores.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

import command
from fused_table import speed
from setting import cpu_clock
from sweep import Cnn, Digits, Gru

import dnnsuite
from dnnsuite.tuning import Hyperband, hyperband_rungs

Config = Mapping[str, float]
BATCH, R, TRIALS, EPOCHS = 64, 27, 24, 8
OURS = "dnnsuite.sweep"


class TabularMlp(torch.nn.Module):
    """Two hidden layers of 64 on 20 columns."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Dropout(dropout),
            torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Dropout(dropout), torch.nn.Linear(64, 2),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.body(x)
        return logits


class TinyBert(torch.nn.Module):
    """Two layers of 32 of Hugging Face's BERT; the second channel of its input is the mask of padding."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        dnnsuite.data.import_torchvision()  # transformers looks for it
        from transformers import BertConfig, BertForSequenceClassification

        sizes = BertConfig(
            vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        )  # fmt: skip
        self.bert = BertForSequenceClassification(sizes)
        for part in self.bert.modules():  # in `sizes` it would be an object in which the models differ
            if isinstance(part, torch.nn.Dropout):
                part.p = dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.bert(input_ids=x[:, 0], attention_mask=x[:, 1]).logits
        return logits


@dataclass(frozen=True)
class Workload:
    """A model by its dropout, and its data."""

    model: Callable[[float], torch.nn.Module]
    train: tuple[torch.Tensor, torch.Tensor]
    held_out: tuple[torch.Tensor, torch.Tensor]

    def batches(self, epoch: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """The batches of an epoch, gathered by index at once as `dnnsuite.sweep` does: no way pays for a loader."""
        order = torch.randperm(len(self.train[0]), generator=torch.Generator().manual_seed(epoch))
        for at in order.split(BATCH):
            yield self.train[0][at], self.train[1][at]


def _images() -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    found = Digits.load()
    x, y = found.loader.dataset.tensors
    return (x, y), (found.x, found.y)


def _table() -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    x = torch.randn(1536, 20, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] * x[:, 1] + x[:, 2] > 0).long()
    return (x[:1280], y[:1280]), (x[1280:], y[1280:])


def _sentences() -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(8, 100, (768, 12), generator=generator)
    y = torch.randint(0, 2, (768,), generator=generator)
    tokens[y == 1, 2] = 7
    mask = torch.arange(12) < torch.randint(4, 13, (768, 1), generator=generator)
    x = torch.stack([tokens * mask, mask.long()], 1)
    return (x[:640], y[:640]), (x[640:], y[640:])


WORKLOADS: dict[str, tuple[Callable[[float], torch.nn.Module], Callable[[], Any]]] = {
    "cnn": (Cnn, _images), "mlp": (TabularMlp, _table), "gru": (Gru, _images), "bert": (TinyBert, _sentences),
}  # fmt: skip


def workload(name: str) -> Workload:
    """A workload with its data."""
    model, data = WORKLOADS[name]
    return Workload(model, *data())


def configs(count: int) -> list[Config]:
    """`count` configurations, the same in all ways."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.rand(count, 3, generator=generator, dtype=torch.float64).tolist()
    return [{"lr": 10 ** (-4 + 2.5 * a), "weight_decay": 0.1 * b, "dropout": 0.4 * c} for a, b, c in drawn]


class Trained:
    """A plain model in training; a worker sends it back and forth between rungs."""

    def __init__(self, of: Workload, number: int, config: Config) -> None:
        torch.manual_seed(number)
        self.model = of.model(config["dropout"])
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=config["lr"], weight_decay=config["weight_decay"], fused=True
        )
        self.history: list[float] = []

    def until(self, of: Workload, epochs: int) -> list[float]:
        """Train up to so many epochs; return the losses on held-out data so far."""
        while len(self.history) < epochs:
            self.epoch(of)
        return self.history

    def state(self) -> tuple[Any, Any, list[float]]:
        """What a process hands over between rungs: plain tensors and numbers."""
        return self.model.state_dict(), self.optimizer.state_dict(), self.history

    def take(self, state: tuple[Any, Any, list[float]]) -> None:
        """Go on from a state."""
        model, optimizer, self.history = state
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict(optimizer)

    def epoch(self, of: Workload) -> float:
        """Train and validate an epoch."""
        for x, y in of.batches(len(self.history)):
            self.optimizer.zero_grad()
            torch.nn.functional.cross_entropy(self.model(x), y).backward()
            self.optimizer.step()
        self.model.eval()
        with torch.no_grad():
            x, y = of.held_out
            self.history.append(torch.nn.functional.cross_entropy(self.model(x), y).item())
        self.model.train()
        return self.history[-1]


Rungs = Sequence[Sequence[tuple[int, int]]]


def rungs_of(search: str) -> Rungs:
    """Brackets of rungs (trials, epochs)."""
    return hyperband_rungs(R) if search == "hyperband" else [[(TRIALS, EPOCHS)]]


def model_epochs(rungs: Rungs) -> int:
    """Epochs of a search whose survivors go on."""
    return sum(count * (until - before) for bracket in rungs
               for (count, until), before in zip(bracket, [0, *(u for _, u in bracket)], strict=False))  # fmt: skip


def halved(rungs: Rungs, train: Callable[[Sequence[int], int], Mapping[int, float]]) -> int:
    """Play a search by hand; `train` takes (trials, epochs) and returns their values. Returns the best trial."""
    first, values = 0, {}
    for bracket in rungs:
        members = list(range(first, first + bracket[0][0]))
        first += len(members)
        for count, until in bracket:
            members = sorted(members, key=lambda trial: values.get(trial, 0.0))[:count]
            values.update(train(members, until))
    return min(values, key=values.__getitem__)


def loop(of: Workload, search: str) -> float:
    """CPU seconds of one model after the other."""
    begin = cpu_clock()
    rungs = rungs_of(search)
    space = configs(sum(bracket[0][0] for bracket in rungs))
    held: dict[int, Trained] = {}

    def train(members: Sequence[int], until: int) -> dict[int, float]:
        for trial in members:
            held.setdefault(trial, Trained(of, trial, space[trial]))
        return {trial: min(held[trial].until(of, until)) for trial in members}

    halved(rungs, train)
    return cpu_clock() - begin


def _rung(of: Workload, state: Any, number: int, config: Config, until: int) -> tuple[Any, float]:
    """A rung in a worker: (the trial's state, CPU seconds)."""
    torch.set_num_threads(1)
    begin = time.process_time()
    one = Trained(of, number, config)
    if state is not None:
        one.take(state)
    one.until(of, until)
    return one.state(), time.process_time() - begin


def processes(of: Workload, search: str, pool: Any) -> float:
    """CPU seconds of joblib's processes, a trial each at a time, and of this one."""
    from joblib import delayed

    begin, spent = cpu_clock(), 0.0
    rungs = rungs_of(search)
    space = configs(sum(bracket[0][0] for bracket in rungs))
    held: dict[int, Any] = {}

    def train(members: Sequence[int], until: int) -> dict[int, float]:
        nonlocal spent
        done = pool(delayed(_rung)(of, held.get(trial), trial, space[trial], until) for trial in members)
        for trial, (state, seconds) in zip(members, done, strict=True):
            held[trial] = state
            spent += seconds
        return {trial: min(held[trial][2]) for trial in members}

    halved(rungs, train)
    return cpu_clock() - begin + spent


def _study(of: Workload, search: str, journal: str, trials: int) -> tuple[float, int]:
    """Optuna's own loop in a worker: (CPU seconds, epochs)."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    torch.set_num_threads(1)
    begin, count = time.process_time(), 0
    backend = optuna.storages.journal.JournalFileBackend(journal)
    hyperband = search == "hyperband"
    pruner: Any = optuna.pruners.HyperbandPruner(1, R, 3) if hyperband else optuna.pruners.NopPruner()
    study = optuna.create_study(
        storage=optuna.storages.JournalStorage(backend), study_name="rivals", load_if_exists=True, pruner=pruner,
        sampler=optuna.samplers.RandomSampler(),
    )  # fmt: skip

    def objective(trial: Any) -> float:
        nonlocal count
        config = {
            "lr": trial.suggest_float("lr", 1e-4, 0.03, log=True),
            "weight_decay": trial.suggest_float("weight_decay", 0, 0.1),
            "dropout": trial.suggest_float("dropout", 0, 0.4),
        }
        one = Trained(of, trial.number, config)
        for epoch in range(1, (R if hyperband else EPOCHS) + 1):
            trial.report(one.epoch(of), epoch)
            count += 1
            if trial.should_prune():
                raise optuna.TrialPruned
        return min(one.history)

    study.optimize(objective, n_trials=trials)
    return time.process_time() - begin, count


def optuna_processes(of: Workload, search: str, pool: Any) -> float:
    """CPU seconds of Optuna over processes that share a journal, for as many epochs as the table has."""
    from joblib import delayed

    rungs = rungs_of(search)
    share = -(-sum(bracket[0][0] for bracket in rungs) // pool.n_jobs)
    with tempfile.TemporaryDirectory() as folder:
        done = pool(delayed(_study)(of, search, f"{folder}/journal", share) for _ in range(pool.n_jobs))
    seconds, epochs = (sum(column) for column in zip(*done, strict=True))
    return float(seconds / epochs * model_epochs(rungs))


def ours(of: Workload, search: str) -> float:
    """CPU seconds of `dnnsuite.sweep`, its files on disk counted too."""
    rungs = rungs_of(search)
    space = configs(sum(bracket[0][0] for bracket in rungs))
    with tempfile.TemporaryDirectory() as folder:
        begin = cpu_clock()
        dnnsuite.sweep(
            lambda config: of.model(config["dropout"]), space, of.train, batch_size=BATCH, evaluate=of.held_out,
            epochs=R if search == "hyperband" else EPOCHS, algorithm=Hyperband() if search == "hyperband" else None,
            threads=1, out=folder, quiet=True,
        )  # fmt: skip
        return cpu_clock() - begin


def ways(pool: Any) -> dict[str, Callable[[Workload, str], float]]:
    """Ways to search, by name."""
    return {
        "loop": loop,
        "processes (joblib)": lambda of, search: processes(of, search, pool),
        "Optuna, processes": lambda of, search: optuna_processes(of, search, pool),
        OURS: ours,
    }


def measure(name: str, search: str, rounds: int, pool: Any, tell: Callable[[str], None]) -> dict[str, list[float]]:
    """CPU seconds of each way, in turns, a value per round, after a first round that is not counted."""
    of = workload(name)
    pool([_warm(of)] * pool.n_jobs)
    found: dict[str, list[float]] = {way: [] for way in ways(pool)}
    for number in range(rounds + 1):
        for way, run in ways(pool).items():
            if number or way == OURS:  # it alone has anything to be set up once for all
                tell(f"{name}, {search}, round {number} of {rounds}, {way}")
                found[way] += [run(of, search)] if number else [run(of, search)][:0]
    return found


def _warm(of: Workload) -> Any:
    from joblib import delayed

    return delayed(_rung)(of, None, 0, configs(1)[0], 1)


def report(name: str, search: str, seconds: Mapping[str, Sequence[float]]) -> list[str]:
    """Rows of the table: each way's time, and how many times as fast as the best of the others dnnsuite is."""
    others = {way: values for way, values in seconds.items() if way != OURS}
    best = min(others, key=lambda way: min(others[way]))
    found = speed(others[best], seconds[OURS])
    cells = " | ".join(f"{min(values):.2f}" for values in seconds.values())
    return [f"| {name} | {search} | {cells} | {found.ratio:.2f} | {best} |"]


def header() -> list[str]:
    """Heads of the table."""
    names = " | ".join((*ways(None), "times the best other", "which is"))
    return [f"| workload | search | {names} |", "|---|---|" + "---:|" * (len(ways(None)) + 1) + "---|"]


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--models", nargs="+", choices=tuple(WORKLOADS), default=tuple(WORKLOADS))
    made.add_argument("--searches", nargs="+", choices=("random", "hyperband"), default=("random", "hyperband"))
    made.add_argument("--rounds", type=int, default=2, help="in which each way has its turn (default 2)")
    made.add_argument("--processes", type=int, default=2, help="of joblib and Optuna (default 2)")
    return made.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    from joblib import Parallel

    options = parsed(arguments)
    torch.set_num_threads(1)
    tell = command.Progress()
    print("\n".join(header()), flush=True)
    with Parallel(n_jobs=options.processes) as pool:
        for name in options.models:
            for search in options.searches:
                found = measure(name, search, options.rounds, pool, tell)
                tell.clear()
                print("\n".join(report(name, search, found)), flush=True)


if __name__ == "__main__":
    command.run(main, "rows")
