# SPDX-License-Identifier: MIT
"""What it costs to share a sweep: processes whose trials do nothing but last, some killed at random, and a simulation.

    python benchmarks/sweep.py shared [--workers 1 4 8 16] [--seconds 0.2] [--share URL] [--kills 4] [--rounds 40]

runs searches by as many processes as given, in a journal in a file or in the database of a URL. A process is that of
a shared sweep but for its trainer, which sleeps: all that takes time besides is what sharing costs. Each is of `rounds`
trials a process. It prints the overhead, that is the time of the processes over that of the trials, and looks whether
each epoch was told once. Then it measures the parts on this machine: a writing of claims and results, with the lock
held and without, and the reading of what others tell. With these numbers it simulates more processes than the machine
has cores for, each on a core of its own: they sleep for their trials, queue for the journal, and read.
"""

from __future__ import annotations

import argparse
import heapq
import json
import multiprocessing
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

import command

from dnnsuite._runs.identity import Identity
from dnnsuite._runs.reading import read_trials
from dnnsuite.tuning import LogUniform, Random
from dnnsuite.tuning.algorithms import Decision, Setting
from dnnsuite.tuning.board import Board
from dnnsuite.tuning.devices import shared_place
from dnnsuite.tuning.goal import Goal
from dnnsuite.tuning.journal import FileJournal, Journal, TableJournal, database_of
from dnnsuite.tuning.shared import CLAIMED_S, TOGETHER_S
from dnnsuite.tuning.trial import Trial

SIMULATED = (10, 25, 50, 100, 200, 400)
LENGTHS = (0.2, 1.0, 5.0)  # seconds of a trial
_START_S = 30.0  # of a process under load, and for each that is started beside it:
_BESIDE_S = 2.0
_WIDE = 1500  # trials that wait at once


class Asleep:
    """Trainer whose epochs only take their time; `spans` has the beginning and end of each."""

    at_once = 1

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.spans: list[tuple[float, float]] = []

    def chosen(self, ready: Sequence[Trial]) -> list[Trial]:
        return list(ready[:1])

    def train(self, trials: Sequence[Trial]) -> list[Any]:
        began_s = time.monotonic()
        time.sleep(self._seconds)
        self.spans.append((began_s, time.monotonic()))
        for trial in trials:
            trial.trained += 1
            trial.seconds += self._seconds
        return [(trial, {"loss": trial.config["lr"]}) for trial in trials]

    def park(self, trial: Trial) -> None:
        return None

    def peek(self, trial: Trial) -> None:
        return None

    def weights(self, trial: Trial) -> dict[str, torch.Tensor]:
        return {"w": torch.tensor(trial.config["lr"])}

    def close(self) -> None:
        return None


@dataclass(frozen=True)
class Part:
    """What a process did: trials heard of and trained; seconds of its trials, from its first trial to its last, before
    and after, of the CPU in all, and of the CPU while it read the journal and decided."""

    heard: int
    trained: int
    asleep_s: float
    between_s: float
    around_s: float
    cpu_s: float
    deciding_s: float


class Timed(Random):
    """Random configurations; `reports` has the CPU time at each value."""

    def begin(self, setting: Setting) -> None:
        super().begin(setting)
        self.reports: list[float] = []

    def report(self, trial: int, epoch: int, value: float) -> Decision:
        self.reports.append(time.process_time())
        return super().report(trial, epoch, value)


def take_part(
    out: Path, trials: int, seconds: float, share: Any, told: Any = None, look_ahead: int = 64, hears: bool = False
) -> Part:
    """Do a part of a search of `trials` that last `seconds`; `hears` leaves the records of before out of sight, so that
    it hears of trials as of those that others train meanwhile."""
    began_s, cpu_s, trainer = time.monotonic(), time.process_time(), Asleep(seconds)
    algorithm, setting = Timed(trials), Setting({"lr": LogUniform(1e-3, 1.0)}, (), 1, 0, False)
    with shared_place(out, share, algorithm, (Identity({"trials": str(trials)}), ()), False) as place:
        read_s = time.process_time() - cpu_s
        algorithm.begin(replace(setting, id=place.id))
        store = place.store("asleep", "serial", "cpu", False)
        if hears:
            store.kept = dict
        engine = place.engine(
            algorithm=algorithm, trainer=trainer, goal=Goal("loss", 1.0), store=store, look_ahead=look_ahead,
            admit=lambda trial: setattr(trial, "group", 0),
        )  # fmt: skip
        engine.run()
        assert store is not None
        store.end(lambda path: None)
    spans = trainer.spans
    between_s = spans[-1][1] - spans[0][0] if spans else 0.0
    around_s = time.monotonic() - began_s - between_s
    deciding_s = read_s + algorithm.reports[-1] - algorithm.reports[0]
    asleep_s = sum(end - begin for begin, end in spans)
    part = Part(len(engine.trials), len(spans), asleep_s, between_s, around_s, time.process_time() - cpu_s, deciding_s)
    if told is not None:
        told.put(part)
    return part


@dataclass(frozen=True)
class Run:
    """A search by several processes.

    Attributes:
        overhead: time from the first to the last trial of a process over that of its trials, less one.
        around_s: seconds of a process before its first trial and after its last.
        cpu_s: CPU seconds of a process.
        twice: epochs that were told more than once.
        lost: trials of which a process, the journal or the records know no result.
        killed: processes that were killed.
    """

    workers: int
    trials: int
    overhead: float
    around_s: float
    cpu_s: float
    twice: int
    lost: int
    killed: int


def told_in(out: Path, share: Any) -> Counter[tuple[int, str]]:
    """Count how often each (trial, epoch) was told in the journal of a search."""
    if share is True:
        journal: Journal = FileJournal(out / "journal.log")
    else:
        journal = TableJournal(database_of(share), f"dnnsuite-{json.loads((out / 'sweep.json').read_text())['id']}")
    lines = list(map(json.loads, journal.read()))
    trials = [line["user_attrs"]["trial"] for line in lines if line["op_code"] == 4]
    return Counter((trials[line["trial_id"]], name) for line in lines if line["op_code"] == 8
                   for name in line["user_attr"])  # fmt: skip


def measured(workers: int, rounds: int, seconds: float, share: Any, kills: int = 0, seed: int = 0) -> Run:
    """Run a search by `workers` processes, of which `kills` are killed at random moments and others begun."""
    draw, context = random.Random(seed), multiprocessing.get_context("fork")
    trials, told = workers * rounds, context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"

        def begun() -> Any:
            process = context.Process(target=take_part, args=(out, trials, seconds, share, told))
            process.start()
            return process

        processes = [begun() for _ in range(workers)]
        for _ in range(kills):
            time.sleep(draw.uniform(0, rounds * seconds / kills))
            place = draw.randrange(workers)
            os.kill(processes[place].pid, signal.SIGKILL)
            processes[place].join()
            processes[place] = begun()
        for process in processes:
            process.join()
        parts = [told.get(timeout=_START_S + _BESIDE_S * workers) for _ in processes]
        counts = told_in(out, share)
        records = len(read_trials(out / "runs")[0])
    lost = trials - min(records, len(counts), *(part.heard for part in parts))
    overhead = sum(part.between_s for part in parts) / sum(part.asleep_s for part in parts) - 1
    around_s = statistics.fmean(part.around_s for part in parts)
    cpu_s = statistics.fmean(part.cpu_s for part in parts)
    return Run(workers, trials, overhead, around_s, cpu_s, sum(n > 1 for n in counts.values()), lost, kills)


@dataclass(frozen=True)
class Costs:
    """Seconds that the parts of sharing take here.

    Attributes:
        alone_s: a writing of `CLAIMED_S` of results and claims, with the lock held.
        after_s: the rest of it, as the wait for the disk.
        hear_s: to hear of a trial of another process.
        own_s: of a trial of its own: its record, the decisions.
        active_s: of a pass of the loop, for each trial that waits or that another process trains.
    """

    alone_s: float
    after_s: float
    hear_s: float
    own_s: float
    active_s: float


def costs(share: Any, seconds: float, repeats: int = 40) -> Costs:
    """Measure the parts on this machine: lower quartiles of writings, the least CPU time of the others of three times.

    What else runs on the machine only adds to them. Of a database the lock is held until all is on the disk.
    """
    alone, whole, batch = [], [], max(1, round(CLAIMED_S / seconds))
    with tempfile.TemporaryDirectory() as folder:
        name, database = f"costs-{time.time()}", database_of(share)
        journal: Any = FileJournal(Path(folder) / "j") if database is None else TableJournal(database, name)
        held = journal.alone

        @contextmanager
        def timed() -> Iterator[None]:
            with held():
                began_s = time.perf_counter()
                yield
                alone[-1] = time.perf_counter() - began_s
            if database is not None:
                alone[-1] = time.perf_counter() - began_s

        journal.alone = timed
        alone.append(0.0)
        board = Board(journal, name, together_s=float("inf"))
        for repeat in range(repeats):
            for trial in range((repeat - 1) * batch, repeat * batch) if repeat else ():
                board.tell(trial, 1, {"loss": 0.5, "train_loss": 0.5}, seconds)
                board.release(trial, 0.5)
            alone.append(0.0)
            began_s = time.perf_counter()
            board.claim(dict.fromkeys(range(repeat * batch, (repeat + 1) * batch), 0))
            whole.append(time.perf_counter() - began_s)
        board.close()
        few, many = (_cpu_of(Path(folder) / str(n), n, share) for n in (1000, 3000))
        wide = _cpu_of(Path(folder) / "wide", _WIDE, share, _WIDE)
    alone_s, whole_s = (statistics.quantiles(each[1:], n=4)[0] for each in (alone, whole))
    own_s, hear_s = (many[0] - few[0]) / 2000, (many[1] - few[1]) / 2000
    active_s = max(0.0, (wide[0] / _WIDE - own_s) / (_WIDE / 2))
    return Costs(alone_s, max(0.0, whole_s - alone_s), hear_s, own_s, active_s)


def _cpu_of(out: Path, trials: int, share: Any, look_ahead: int = 64) -> tuple[float, float]:
    """CPU seconds of a process that does all trials, which take no time, and of what one that hears of them decides."""
    whole, deciding = [], []
    for n in range(3):
        whole.append(take_part(out / str(n), trials, 0.0, share, None, look_ahead).cpu_s)
        deciding.append(take_part(out / str(n), trials, 0.0, share, None, look_ahead, hears=True).deciding_s)
    return min(whole), min(deciding)


def simulated(workers: int, found: Costs, seconds: float, for_s: float = 120.0) -> float:
    """Overhead of sharing for a process of `workers` on cores of their own.

    A process claims `CLAIMED_S` of trials, writes every `TOGETHER_S`, and before each writing hears what the others
    have told since the last. Writings queue for the journal.
    """
    draw = random.Random(workers)
    batch = max(1, round(min(CLAIMED_S, TOGETHER_S) / seconds))
    active = 32 * workers
    queue = [(draw.uniform(0, batch * seconds), worker) for worker in range(workers)]
    heapq.heapify(queue)
    free_s = 0.0
    last, done = [0.0] * workers, [0] * workers
    rate = workers / seconds  # trials told by all in a second, at most
    while queue[0][0] < for_s:
        now_s, worker = heapq.heappop(queue)
        ready_s = now_s + found.hear_s * rate * (now_s - last[worker])  # has read, asks for the lock
        last[worker] = now_s
        begin_s = max(ready_s, free_s)
        free_s = begin_s + found.alone_s
        trial_s = seconds + found.own_s + found.active_s * active
        done[worker] += batch
        heapq.heappush(queue, (free_s + found.after_s + batch * trial_s, worker))
    return for_s * workers / (seconds * sum(done)) - 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4, 8, 12])
    parser.add_argument("--seconds", type=float, default=0.2, help="of a trial")
    parser.add_argument("--rounds", type=int, default=40, help="trials for each process")
    parser.add_argument("--kills", type=int, default=4, help="processes that are killed, in a run of their own")
    parser.add_argument("--share", default=True, help="URL of a database; by default a file")
    options = parser.parse_args()
    print("| processes | trials | killed | overhead | start and end, s | CPU, s | told twice | lost |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|")
    for workers, kills in [*((each, 0) for each in options.workers), (max(options.workers), options.kills)]:
        run = measured(workers, options.rounds, options.seconds, options.share, kills)
        print(f"| {workers} | {run.trials} | {kills} | {run.overhead:.1%} | {run.around_s:.1f} | {run.cpu_s:.2f} | "
              f"{run.twice} | {run.lost} |", flush=True)  # fmt: skip
    found = costs(options.share, options.seconds)
    print("\n" + ", ".join(f"{name} {1e3 * value:.3g} ms" for name, value in vars(found).items()).replace("_s", ""))
    print("\n| processes | " + " | ".join(f"{seconds:g} s" for seconds in LENGTHS) + " |")
    print("|---:|" + "---:|" * len(LENGTHS))
    for workers in SIMULATED:
        print(f"| {workers} | " + " | ".join(f"{simulated(workers, found, seconds):.1%}" for seconds in LENGTHS) + " |")


if __name__ == "__main__":
    command.run(main, "rows")
