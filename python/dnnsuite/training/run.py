# SPDX-License-Identifier: MIT
"""A training run in a directory: begun, resumed, ended well or with a reason, and recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .._files import write_json
from .._runs.device import choose_device
from .._runs.failures import FINAL, NotFinite, classify
from .._runs.folder import PlanFolder, opened
from .._runs.interrupts import deferred, interruptible
from .._runs.progress import Progress
from .._runs.reading import RUN_FILE, read_run
from .._runs.record import Moment, RunRecord, Verdict
from .._runs.samples import write_samples
from ..cluster import adopt_step
from ..errors import Error, InvalidArgument
from .checkpoints import CHECKPOINT, read_checkpoint
from .experiment import Experiment
from .history import EventFiles, Row
from .log import Log
from .loop import Loop, Stopped
from .processes import Processes
from .record import record_of
from .watch import Watch

__all__ = ["RESUME", "TRAINING_FILE", "Trained", "run"]

TRAINING_FILE = "training.json"
RESUME = ("never", "auto")


@dataclass(frozen=True)
class Trained:
    """A run that has ended.

    Attributes:
        folder: with metrics.csv, monitor.csv, train.log, checkpoint.pt, best.pt and run.json.
        record: as in run.json; None in processes that are not the first.
        history: a row per epoch.
        model: as it is at the end.
    """

    folder: Path
    record: RunRecord | None
    history: list[Row]
    model: torch.nn.Module


def run(
    experiment: Experiment | Callable[[str], Experiment],
    out: str | Path,
    *,
    resume: str = "never",
    device: str = "auto",
    tensorboard: bool = False,
    quiet: bool = False,
    preset: str = "",
    asked: Mapping[str, Any] | None = None,
) -> Trained:
    """Train an experiment in the directory `out`.

    Under torchrun or srun every process calls this; the first writes the files. The process group stays for later runs;
    a process ends with :func:`dnnsuite.jobs.distributed.finish`. Ctrl-C saves and ends.

    Args:
        experiment: or a function that makes it for a device (cpu or cuda).
        resume: `never` wants `out` empty or absent; `auto` goes on with what is in it, or begins; else the path of a
            checkpoint to go on from, in an empty `out`.
        device: auto, cpu or cuda.
        tensorboard: write tb_logs, where tensorboard is installed.
        quiet: print nothing.
        preset, asked: for the record.

    Raises:
        Interrupted: a signal arrived; `checkpoint.pt` is of the last step.
        NotFinite: a loss became NaN or infinite; `run.json` says so.
        InvalidArgument: `out` is not empty, or was made with other settings.
        OutputError: a file cannot be written; the last checkpoint is whole.
        Error: any other of the package's own.
    """
    adopt_step()
    kind = choose_device(device)
    processes = Processes(kind)
    try:
        made = experiment if isinstance(experiment, Experiment) else experiment(kind)
        _check_divides(made, processes)
        with interruptible(), deferred(), _folder(Path(out), resume, processes) as folder:
            screen = None if quiet else Progress()
            try:
                with Log(folder.root if folder else None, screen) as log:
                    return _run(
                        made, processes, folder, Path(out), resume, log, tensorboard, preset, asked or {}
                    )
            except Stopped:
                pass  # leaving the block raises Interrupted where the signal arrived
            except RuntimeError as error:
                processes.refuse_lost(error, Path(out) / CHECKPOINT)
                raise
        raise Error("another process of this run was asked to end")
    finally:
        processes.close()


def _check_divides(experiment: Experiment, processes: Processes) -> None:
    if experiment.batch_size % processes.world_size:
        raise InvalidArgument(
            f"batch_size is {experiment.batch_size}, which {processes.world_size} processes do not divide: "
            f"take {experiment.batch_size // processes.world_size * processes.world_size or processes.world_size}"
        )


@contextmanager
def _folder(out: Path, resume: str, processes: Processes) -> Iterator[PlanFolder | None]:
    """The directory, locked, in the first process; None in the others, which wait for it."""
    with ExitStack() as stack:
        held: list[PlanFolder] = []

        def enter() -> None:
            go_on = resume == "auto" and (out / TRAINING_FILE).is_file()
            held.append(stack.enter_context(opened(out, TRAINING_FILE, go_on, runs=".")))
            held[0].save()

        processes.by_first(enter)
        yield held[0] if held else None


class _Ending:
    """End of a run: holds all that the record needs beside the loop, and writes it in the first process."""

    def __init__(
        self, loop: Loop, experiment: Experiment, processes: Processes, folder: PlanFolder | None
    ) -> None:
        self._loop, self._experiment, self._processes, self._folder = loop, experiment, processes, folder
        self._started = Moment.now()

    def write(self, verdict: Verdict, preset: str, asked: Mapping[str, Any]) -> RunRecord | None:
        """Write run.json, samples.csv and phases.csv."""
        if self._folder is None:
            return None
        record = record_of(
            self._experiment,
            self._processes,
            plan_id=self._folder.id,
            preset=preset,
            started=self._started,
            verdict=verdict,
            history=self._loop.at.history,
            samples=self._loop.samples,
            parameters=sum(each.numel() for each in self._loop.stepper.model.parameters()),
            asked=asked,
            threads=torch.get_num_threads(),
        )
        if self._loop.samples:
            write_samples(self._folder.root, self._loop.samples)
        self._loop.phases.save(self._folder.root)
        write_json(self._folder.root / RUN_FILE, record.to_dict())
        return record


def _run(
    experiment: Experiment,
    processes: Processes,
    folder: PlanFolder | None,
    out: Path,
    resume: str,
    log: Log,
    events: bool,
    preset: str,
    asked: Mapping[str, Any],
) -> Trained:
    checkpoint = _checkpoint(out, resume, processes)
    state = read_checkpoint(checkpoint) if checkpoint else None
    files = EventFiles(out, state["position"]["epoch"] if state else 0) if events and folder else None
    if files and files.note:
        log.info(files.note)
    try:
        loop = Loop(experiment, processes, folder.root if folder else None, log, files)
        _introduce(log, experiment, loop)
        if checkpoint and state:
            loop.resume(checkpoint, state)
        done = out / RUN_FILE
        if folder and loop.at.epoch >= experiment.epochs and done.is_file():
            log.info(f"All {experiment.epochs} epochs are done already")
            return Trained(out, read_run(done), loop.at.history, loop.stepper.model)
        if folder:
            done.unlink(missing_ok=True)  # of an earlier end
        gpus = processes.device.type == "cuda"
        with Watch(folder.root if folder else None, gpus, go_on=checkpoint is not None) as watch:
            loop.after_epoch = watch.write_now_and_then
            record = _train(loop, _Ending(loop, experiment, processes, folder), experiment, preset, asked)
    finally:
        if files:
            files.close()
    return Trained(out, record, loop.at.history, loop.stepper.model)


def _checkpoint(out: Path, resume: str, processes: Processes) -> Path | None:
    """The checkpoint to go on from; None to begin."""
    if resume == "never":
        return None
    path = out / CHECKPOINT if resume == "auto" else Path(resume)
    there = processes.by_first(path.is_file)
    if not there and resume != "auto":
        raise InvalidArgument(
            f"--resume {resume}: no such file; accepted: {', '.join(RESUME)}, or a checkpoint"
        )
    return path if there else None


def _introduce(log: Log, experiment: Experiment, loop: Loop) -> None:
    data, order = experiment.data, loop.order
    parameters = sum(each.numel() for each in loop.stepper.model.parameters())
    log.info(
        f"{experiment.name}: {parameters:,} parameters, {experiment.precision}, batch {experiment.batch_size}"
    )
    log.info(f"data: {data.source}, {len(data.train):,} for training, {len(data.valid):,} for validation")
    if order.dropped:
        log.info(
            f"{order.dropped:,} samples of each epoch, others in each, are in none of its {order.steps} steps"
        )


def _train(
    loop: Loop, ending: _Ending, experiment: Experiment, preset: str, asked: Mapping[str, Any]
) -> RunRecord | None:
    try:
        loop.run()
    except (RuntimeError, MemoryError, NotFinite) as error:
        failure = classify(error)
        if failure not in FINAL:
            raise
        ending.write(Verdict.failed(failure, str(error).splitlines()[0]), preset, asked)
        if failure == "oom":
            raise Error(
                f"memory ran out with batch_size {experiment.batch_size} in step {loop.at.step}: take a smaller one"
            ) from error
        raise
    return ending.write(Verdict.good(), preset, asked)
