# SPDX-License-Identifier: MIT
"""A training run in a directory: it is begun or resumed there, ends well or with a reason, and is recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from .. import host
from .._files import OutputError, write_text
from .._runs.failures import FINAL, classify
from .._runs.folder import PlanFolder, opened, write_run
from .._runs.identity import cannot_tell
from .._runs.interrupts import deferred, interruptible
from .._runs.progress import Progress
from .._runs.rates import write_samples
from .._runs.reading import RUN_FILE, read_run
from .._runs.record import Moment, RunRecord, Verdict
from .._runs.spec import said_of_plugin
from .._runs.words import choose_device
from ..cluster import adopt_step
from ..errors import Error, InvalidArgument
from .array import ExperimentArray
from .array_stepper import speedup
from .experiment import Experiment
from .history import EventFiles, Row, save_models
from .lines import Log, Watch
from .loop import Loop, Stopped
from .processes import Processes
from .record import record_of
from .saver import CHECKPOINT, BadCheckpoint, read_checkpoint

TRAINING_FILE = "training.json"
RESUME = ("never", "auto")


@dataclass(frozen=True)
class Trained:
    """A finished run.

    Attributes:
        folder: directory with metrics.csv, monitor.csv, train.log, checkpoint.pt, best.pt and run.json. For an array it
            also has models.csv, and models/0, models/1 and so on with checkpoint.pt and best.pt of each model.
        record: content of run.json; None in all processes but the first.
        history: a row per epoch; for an array, a row per epoch and model.
        model: the trained model; for an array, the models that trained to the end, fused.
        ended: models of an array that ended before the others, by number, with the reason.
    """

    folder: Path
    record: RunRecord | None
    history: list[Row]
    model: torch.nn.Module
    ended: Mapping[int, str] = field(default_factory=dict)


def run(
    experiment: Experiment | ExperimentArray | Callable[[str], Experiment | ExperimentArray],
    out: str | Path,
    *,
    resume: str = "never",
    device: str = "auto",
    tensorboard: bool = False,
    quiet: bool = False,
    preset: str = "",
    asked: Mapping[str, Any] | None = None,
    allow_changed: Sequence[str] = (),
) -> Trained:
    """Train an experiment, or an array of them, into the directory `out`.

    Under torchrun or srun every process calls this function, and the first one writes the files. The process group is
    kept for later runs; end a process with :func:`dnnsuite.jobs.distributed.finish`. Ctrl-C saves a checkpoint and ends
    the run.

    Args:
        experiment: an experiment, an array of them, or a function that makes one for a device (cpu or cuda).
        out: directory of the run, with metrics.csv, train.log, run.json, checkpoint.pt and best.pt.
        resume: `never` requires that `out` is empty or absent; `auto` continues the run in it, or begins one; a path is
            a checkpoint to continue from, in an empty `out`.
        device: auto, cpu or cuda.
        tensorboard: write tb_logs, if tensorboard is installed.
        quiet: print nothing.
        preset, asked: entries of the record.
        allow_changed: names of settings that may differ when a run is resumed, for example `["loss"]`; the record notes
            them.

    Returns:
        The run, with its history, its record and the trained model.

    Raises:
        Interrupted: a signal arrived; `checkpoint.pt` has the state after the last step.
        NotFinite: the loss became NaN or infinite; in an array, that of the last remaining model. `run.json` says so.
        InvalidArgument: `out` is not empty, or was made with other settings.
        OutputError: a file cannot be written; the last checkpoint is intact.
    """
    adopt_step()
    kind = choose_device(device)
    processes = Processes(kind)
    try:
        made = experiment if isinstance(experiment, (Experiment, ExperimentArray)) else experiment(kind)
        _check_divides(first_of(made), processes)
        with interruptible(), deferred(), _folder(Path(out), resume, processes) as folder:
            screen = None if quiet else Progress()
            try:
                with Log(folder.root if folder else None, screen) as log:
                    return _run(
                        made, processes, folder, Path(out), resume, log, tensorboard, preset, asked or {},
                        allow_changed,
                    )  # fmt: skip
            except Stopped:
                pass  # leaving the block raises Interrupted where the signal arrived
            except RuntimeError as error:
                processes.refuse_lost(error, Path(out) / CHECKPOINT)
                raise
        raise Error("another process of this run was asked to end")
    finally:
        processes.close()


def first_of(experiment: Experiment | ExperimentArray) -> Experiment:
    """Values that all models of a run share."""
    return experiment.first if isinstance(experiment, ExperimentArray) else experiment


def parameters_of(loop: Loop) -> int:
    """Number of parameters of one model."""
    total = sum(each.numel() for each in loop.stepper.model.parameters())
    return total // len(loop.stepper.numbers)


def _check_divides(experiment: Experiment, processes: Processes) -> None:
    if experiment.batch_size % processes.world_size:
        raise InvalidArgument(
            f"batch_size is {experiment.batch_size}, which cannot be divided among {processes.world_size} processes: "
            f"use {experiment.batch_size // processes.world_size * processes.world_size or processes.world_size}"
        )


@contextmanager
def _folder(out: Path, resume: str, processes: Processes) -> Iterator[PlanFolder | None]:
    """The directory, locked, in the first process; None in the others, which wait for it."""
    with ExitStack() as stack:
        held: list[PlanFolder] = []

        def enter() -> None:
            go_on = resume == "auto" and (out / TRAINING_FILE).is_file()
            if resume == "auto" and not go_on and (out / CHECKPOINT).is_file():
                raise InvalidArgument(
                    f"{out} holds a {CHECKPOINT} and no {TRAINING_FILE}, so it cannot be continued there: continue "
                    f"from the checkpoint elsewhere, with --resume {out / CHECKPOINT} and another --out"
                )
            held.append(stack.enter_context(opened(out, TRAINING_FILE, go_on, runs=".")))
            held[0].save()

        processes.by_first(enter)
        yield held[0] if held else None


class _Ending:
    """End of a run: holds all that the record needs beside the loop, and writes it in the first process."""

    def __init__(
        self,
        loop: Loop,
        experiment: Experiment | ExperimentArray,
        processes: Processes,
        folder: PlanFolder | None,
        watch: Watch,
        out: Path,
    ) -> None:
        self._loop, self._experiment, self._processes, self._folder = loop, experiment, processes, folder
        self._watch, self._out = watch, out
        self._started = Moment.now()

    def reason(self, error: Exception, message: str) -> str:
        """Return the reason why a run of several processes failed, which may be an error in only one of them.

        A process that is not the first leaves its message in a file for the record, which the first one writes.
        """
        if self._processes.world_size == 1:
            return message
        if self._folder is None:
            write_text(self._out / f"failed-{self._processes.rank}.txt", message)
            return message
        told = []
        for path in sorted(self._out.glob("failed-*.txt")):
            told.append(f"process {path.stem.removeprefix('failed-')}: {path.read_text(encoding='utf-8')}")
            path.unlink()
        gone = "another process of the run ended, or its node is gone"
        return "; ".join(told) or (gone if self._processes.lost(error) else message)

    def write(self, verdict: Verdict, preset: str, asked: Mapping[str, Any]) -> RunRecord | None:
        """Write the files of the whole run, and run.json last."""
        self._watch.end()
        if self._folder is None:
            return None
        record = record_of(
            self._experiment, self._processes, plan_id=self._folder.id, preset=preset, started=self._started,
            verdict=verdict, history=self._loop.at.history, samples=self._loop.samples,
            parameters=parameters_of(self._loop), asked=asked, threads=torch.get_num_threads(),
            ended=self._loop.ended, speedup=speedup(self._loop.pairs), changed=self._loop.saver.changed,
            audits=getattr(self._loop.stepper, "audits_passed", 0),
        )  # fmt: skip
        if isinstance(self._experiment, ExperimentArray):
            save_models(self._folder.root, self._experiment, self._loop.at.history, self._loop.ended)
        if self._loop.samples:
            write_samples(self._folder.root, self._loop.samples)
        write_run(self._folder.root, record)
        return record


def _run(
    experiment: Experiment | ExperimentArray,
    processes: Processes,
    folder: PlanFolder | None,
    out: Path,
    resume: str,
    log: Log,
    events: bool,
    preset: str,
    asked: Mapping[str, Any],
    allowed: Sequence[str],
) -> Trained:
    checkpoint = _checkpoint(out, resume, processes)
    state = _state_of(checkpoint) if checkpoint else None
    names = experiment.names if isinstance(experiment, ExperimentArray) else ()
    files = EventFiles(out, state["position"]["epoch"] if state else 0, names) if events and folder else None
    if files and files.note:
        log.info(files.note)
    try:
        loop = Loop(experiment, processes, folder.root if folder else None, log, files)
        _introduce(log, experiment, loop, processes.device.type == "cuda")
        if checkpoint and state:
            loop.resume(checkpoint, state, allowed)
        elif folder and loop.saver.unknown:
            log.info(cannot_tell(loop.saver.unknown))
        done = out / RUN_FILE
        if folder and loop.done and done.is_file():
            log.info(f"All {loop.at.epoch} epochs are done already")
            return Trained(out, read_run(done), loop.at.history, loop.stepper.model, loop.ended)
        if folder:
            done.unlink(missing_ok=True)  # of an earlier end
        gpus = processes.device.type == "cuda"
        with Watch(folder.root if folder else None, gpus, go_on=checkpoint is not None) as watch:
            loop.after_epoch = watch.write_now_and_then
            record = _train(loop, _Ending(loop, experiment, processes, folder, watch, out), experiment, preset, asked)
    finally:
        if files:
            files.close()
    return Trained(out, record, loop.at.history, loop.stepper.model, loop.ended)


def _state_of(checkpoint: Path) -> dict[str, Any]:
    """Read a checkpoint of a run; refuse one that has a model only."""
    state = read_checkpoint(checkpoint)
    if "position" not in state:
        raise BadCheckpoint(
            f"{checkpoint} holds a model without the state to continue from: take {CHECKPOINT}, or --evaluate this"
        )
    return state


def _checkpoint(out: Path, resume: str, processes: Processes) -> Path | None:
    """Return the checkpoint to continue from; None to begin."""
    if resume == "never":
        return None
    path = out / CHECKPOINT if resume == "auto" else Path(resume)
    there = processes.by_first(path.is_file)
    if not there and resume != "auto":
        raise InvalidArgument(f"--resume {resume}: no such file; accepted: {', '.join(RESUME)}, or a checkpoint")
    return path if there else None


def _introduce(log: Log, made: Experiment | ExperimentArray, loop: Loop, on_gpu: bool) -> None:
    experiment, order = first_of(made), loop.order
    data = experiment.data
    array = f"an array of {made.B} models of " if isinstance(made, ExperimentArray) else ""
    log.info(
        f"{experiment.name}: {array}{parameters_of(loop):,} parameters, {experiment.precision}, "
        f"batch {experiment.batch_size}"
    )
    if not on_gpu and not host.computes_in(experiment.precision):
        log.info(f"note: {experiment.precision} is slower than fp32 on this CPU, which has no units for it")
    for number, name in enumerate(made.names if isinstance(made, ExperimentArray) else ()):
        log.info(f"model {number}: {name}")
    train, valid = f"{len(data.train):,}", f"{len(data.valid):,}"
    job = experiment.lines == "job"  # whose validation counts batches
    sizes = (
        f"{train} samples an epoch; batches for validation: {valid}"
        if job
        else f"{train} for training, {valid} for validation"
    )
    log.info(f"data: {data.source}, {sizes}")
    if order.dropped:
        log.info(f"{order.dropped:,} samples, other ones each time, are left out of an epoch's {order.steps} steps")


def _train(
    loop: Loop, ending: _Ending, experiment: Experiment | ExperimentArray, preset: str, asked: Mapping[str, Any]
) -> RunRecord | None:
    try:
        loop.run()
    except Exception as error:
        failure = classify(error)
        if isinstance(error, (Stopped, OutputError)):
            raise
        said = "" if isinstance(error, Error) else said_of_plugin(error)
        message = said or next(iter(str(error).splitlines()), type(error).__name__)
        if failure not in FINAL:  # what all processes find alike
            message = ending.reason(error, message)
        ending.write(Verdict.failed(failure, message), preset, asked)
        if failure == "oom":
            many = f" and B={experiment.B}" if isinstance(experiment, ExperimentArray) else ""
            raise Error(
                f"memory ran out with batch_size {first_of(experiment).batch_size}{many} in step {loop.at.step}: "
                "take a smaller one"
            ) from error
        raise
    return ending.write(Verdict.good(), preset, asked)
