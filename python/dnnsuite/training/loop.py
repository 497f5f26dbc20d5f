# SPDX-License-Identifier: MIT
"""The loop of a run: epochs of training and validation, checkpoints, and a clean stop between two steps."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .._runs.failures import NotFinite
from .._runs.interrupts import pending
from .._runs.rates import Sample
from .._shown import rate as shown_rate
from .array import ExperimentArray
from .array_stepper import STEPS, Alone, ArrayStepper
from .experiment import Experiment
from .history import MODEL, EventFiles, Position, Row, save_metrics
from .lines import LINES, Log, Window
from .loading import Feed
from .processes import Processes
from .record import arrivals
from .saver import ArraySaver, Saver, State
from .stepper import Phases, Stepper, Tally
from .validation import validate

Means = dict[str, float]


class Stopped(Exception):
    """Raised when a signal has ended the loop between two steps; all is saved."""


class Loop:
    """Training of an experiment, or of an array of them. Every process of the run has one; the first writes the files.

    Args:
        folder: directory of the run; None in other processes.
        events: TensorBoard's files, if wanted.
    """

    stepper: Stepper | ArrayStepper
    saver: Saver | ArraySaver

    def __init__(
        self,
        experiment: Experiment | ExperimentArray,
        processes: Processes,
        folder: Path | None,
        log: Log,
        events: EventFiles | None = None,
    ) -> None:
        self._processes = processes
        self._folder, self._log, self._events = folder, log, events
        names: tuple[str, ...] = ()
        if isinstance(experiment, ExperimentArray):
            self._experiment, experiments = experiment.first, list(experiment.experiments)
            names = tuple(experiment.names)
            self.stepper = ArrayStepper(experiment, processes)
            alone = Alone(self._experiment, processes)
            self.saver = ArraySaver(experiment, self.stepper, alone, processes.device, folder)
        else:
            self._experiment, experiments = experiment, [experiment]
            self.stepper = Stepper(experiment, processes)
            self.saver = Saver(experiment, self.stepper, processes, folder)
        self.order = self._experiment.order
        self._lines = LINES["sc20" if names and self._experiment.lines != "job" else self._experiment.lines](log, names)
        self._feed = Feed(experiments, processes)
        profiled = self.order.steps if self._experiment.profile else 0
        self.phases = Phases(profiled, cuda=processes.device.type == "cuda")
        self.at = Position()
        self._warm = False  # True once a window of this process has passed, in which everything starts
        self._tally = self._new_tally()
        self._mark_ns = self._mark_items = self._data_ns = 0
        self._began_s = 0.0
        self.after_epoch: Callable[[], None] = lambda: None  # may be replaced

    @property
    def samples(self) -> list[Sample]:
        """Windows of training so far, of earlier processes of the run, too."""
        return self.at.samples

    @property
    def ended(self) -> dict[int, str]:
        """Models of an array that ended before the others, by number, with the reason."""
        return self.saver.ended if isinstance(self.saver, ArraySaver) else {}

    @property
    def pairs(self) -> list[tuple[float, float]]:
        """Seconds per item (alone, in the array), as they were measured."""
        return self.saver.alone.pairs if isinstance(self.saver, ArraySaver) else []

    @property
    def done(self) -> bool:
        """True after the last epoch, or once every model that still trains has reached the target."""
        until = self._experiment.until
        if until is not None and arrivals(until, self.at.history).keys() >= set(self.stepper.numbers):
            return True
        return self.at.epoch >= self._experiment.epochs

    def _new_tally(self) -> Tally:
        return Tally(self._experiment.metrics.names, len(self.stepper.numbers))

    def run(self) -> None:
        """Train to the last epoch.

        Raises:
            Stopped: a signal arrived, and a checkpoint was written.
            NotFinite: a loss or a parameter became NaN or infinite; the last checkpoint is from before. Of an array:
                in the last model that was left.
            LostWorker: a process that prepares batches has ended.
        """
        total = self._experiment.epochs * self.order.steps
        self._began_s = time.monotonic() - 60 * self.at.minutes
        self._log.begin(self._experiment.name, total, self.at.step)
        self._log.info("Starting Training Loop...")
        try:
            while not self.done:
                self._epoch()
        except RuntimeError as error:  # torch tells of a dead worker wherever the main thread is
            self._feed.check(error)
            raise
        finally:
            self._feed.close()
            self.stepper.close()

    def _epoch(self) -> None:
        epoch, window = self.at.epoch, self._experiment.profile
        began_s = time.monotonic()
        if not self.at.iteration:
            self.stepper.begin_epoch(epoch)
        with self.phases.profiled(epoch + 1, window is not None and window.epoch == epoch + 1):
            self._train()
        self._processes.same_buffers(self.stepper.model)
        self._check_parameters()
        valid_began_s = time.monotonic()
        valid = self._validate()
        valid_s = time.monotonic() - valid_began_s
        trained = [self._tally.means(self._processes.total(each)) for each in self._tally.totals]
        self.stepper.end_epoch(epoch, [each["loss"] for each in valid])
        self._compare()
        self._end_epoch(trained, valid, valid_s)
        self._log.info(f"Time taken for epoch {epoch + 1} is {time.monotonic() - began_s} sec")
        self._lines.ended(self.stepper.numbers, trained, valid)

    def _train(self) -> None:
        at = self.at
        self.stepper.model.train()
        batches = self._feed.training(at.epoch, at.iteration, self.stepper.numbers)
        self._mark_ns, self._mark_items, self._data_ns = time.monotonic_ns(), 0, 0
        for i in range(at.iteration, self.order.steps):
            with self.phases.iteration(i):
                with self.phases.data:
                    began_ns = time.monotonic_ns()
                    share, batch = next(batches)
                    inputs, labels = self.stepper.place(batch)
                    self._data_ns += time.monotonic_ns() - began_ns
                self.stepper.begin_step(at.step)
                results = self.stepper.train(inputs, labels, share, self.phases)
            self._tally.add(results, share.counted)
            self._mark_items += share.whole * len(self.stepper.numbers)
            at.iteration, at.step = i + 1, at.step + 1
            if i % self._experiment.log_every == 0:
                self._look(i)
            self._between_steps(i)
        self._look(self.order.steps - 1)
        next(batches, None)  # the end of the loader's iterator

    def _between_steps(self, i: int) -> None:
        if self._processes.any(pending()):
            self._look(i)
            self._stop()
        every = self._experiment.checkpoint_every
        if every and (i + 1) % every == 0 and i + 1 < self.order.steps:
            self._look(i)
            self.save()

    def _look(self, i: int) -> None:
        """Fetch the losses since the last look: check them, note the rate, tell it."""
        steps, before = len(self._tally), [list(each) for each in self._tally.totals]
        bad = [self._processes.least(each) for each in self._tally.collect()]
        if not steps:
            return
        now_ns = time.monotonic_ns()
        took_ns, items = now_ns - self._mark_ns, self._mark_items
        rate = items / (took_ns * 1e-9)
        self.at.seconds += took_ns * 1e-9
        phase, means = "train" if self._warm else "warmup", self._tally.since(before)
        self._warm = True
        self._lose(
            {
                slot: f"the loss is NaN or infinite in step {self.at.step - steps + int(first)} "
                f"(epoch {self.at.epoch + 1}, iteration {i - steps + 1 + int(first)})"
                for slot, first in enumerate(bad)
                if math.isfinite(first)
            }
        )
        self.samples.append(Sample(self.at.epoch, self._mark_ns, now_ns, items, phase))
        at, took_s, data_s = self.at, took_ns * 1e-9, self._data_ns * 1e-9
        self._lines.trained(Window(at.epoch, i, self.order.steps, at.step, steps, took_s, data_s, items, means))
        total, unit = self._experiment.epochs * self.order.steps, f"{self._experiment.data.item}/s"
        text = f"epoch {self.at.epoch + 1}/{self._experiment.epochs}  {shown_rate(rate, unit)}"
        self._log.at(self.at.step, total, text)
        self._mark_ns, self._mark_items, self._data_ns = time.monotonic_ns(), 0, 0

    def _lose(self, bad: Mapping[int, str]) -> None:
        """Take models that are not finite out of an array.

        Raises:
            NotFinite: none is left, as where there is one only.
        """
        if not bad:
            return
        told = {}
        for slot, reason in bad.items():
            last = self.saver.last(self.stepper.numbers[slot])
            kept = f"the last good checkpoint is {last}" if last else "there is no checkpoint yet"
            told[slot] = f"{self._lines.of(self.stepper.numbers[slot])}{reason}; {kept}"
        left = [slot for slot in range(len(self.stepper.numbers)) if slot not in bad]
        if isinstance(self.saver, ArraySaver):
            for slot, sentence in told.items():
                self._log.info(f"{sentence}; it trains no more")
                self.saver.ended[self.stepper.numbers[slot]] = sentence
        if not left or isinstance(self.stepper, Stepper):
            raise NotFinite(list(told.values())[-1])
        self.stepper.drop(bad)
        self._tally.keep(left)

    def _validate(self) -> list[Means]:
        """Means over every sample of the validation part, of each model whose loss is finite."""
        alone = self._processes.world_size == 1
        between = self._stop_if_asked if alone else lambda: None
        found = validate(
            self._experiment, self.stepper, self._feed, self._processes, self._lines, self.at.epoch, between
        )
        self._stop_if_asked()
        where = f"after epoch {self.at.epoch + 1} (step {self.at.step})"
        bad = {slot: said for slot, each in enumerate(found) if (said := _not_finite(each))}
        self._lose({slot: f"{said} {where}" for slot, said in bad.items()})
        return [each for slot, each in enumerate(found) if slot not in bad]

    def _stop_if_asked(self) -> None:
        if self._processes.any(pending()):
            self._stop()

    def _compare(self) -> None:
        """Let one model of an array take a few steps alone, beside what the epoch's steps took."""
        if not isinstance(self.saver, ArraySaver):
            return
        own = [s for s in self.samples if s.epoch == self.at.epoch and s.phase == "train"]
        items = sum(sample.items for sample in own)
        trained_s = sum(s.stop_ns - s.start_ns for s in self.samples) * 1e-9
        if not items or not self.saver.alone.due(trained_s):
            return
        began_s = time.monotonic()
        start = max(0, self.order.steps - STEPS)
        seconds = sum(s.stop_ns - s.start_ns for s in own) * 1e-9
        self.saver.alone.measure(self._feed.training(self.at.epoch, start, [0]), seconds / items)
        self._began_s += time.monotonic() - began_s  # it is no part of the training

    def _end_epoch(self, trained: list[Means], valid: list[Means], valid_s: float) -> None:
        """Note the epoch, in the files too, and begin the next.

        The checkpoint, which says that the epoch is done, is the last file: a run that dies before it makes the others
        once more.
        """
        at = self.at
        at.minutes = (time.monotonic() - self._began_s) / 60
        items = sum(sample.items for sample in self.samples if sample.epoch == at.epoch)
        seconds = sum(s.stop_ns - s.start_ns for s in self.samples if s.epoch == at.epoch) * 1e-9
        rows = []
        for slot, number in enumerate(self.stepper.numbers):
            row: Row = {MODEL: number} if self._lines.names else {}
            row |= {"epoch": at.epoch + 1, "step": at.step}
            row |= {"learning_rate": self.stepper.learning_rates()[slot]}
            for name in valid[slot]:
                row |= {f"{name}/train": trained[slot][name], f"{name}/valid": valid[slot][name]}
            row |= {"images_per_s": items / seconds if seconds else math.nan}
            row |= {"seconds/train": at.seconds, "seconds/valid": valid_s, "minutes": at.minutes}
            rows.append(row)
        at.history += rows
        at.epoch, at.iteration, at.seconds = at.epoch + 1, 0, 0.0
        self._tally = self._new_tally()
        better = [
            at.improved(number, found.get("acc1", -found["loss"]))
            for number, found in zip(self.stepper.numbers, valid, strict=True)
        ]
        self._write_epoch(rows)
        if self._experiment.save_checkpoints:
            for slot, found in enumerate(valid):
                if better[slot]:
                    self.saver.save_best(slot, at.epoch, found)
            self.saver.save(at, self._tally.totals)
        self.after_epoch()

    def _write_epoch(self, rows: list[Row]) -> None:
        if self._folder is not None:
            save_metrics(self._folder, self.at.history)
            self.phases.save(self._folder)
        if self._events is not None:
            for row in rows:
                self._events.add(row)

    def _stop(self) -> None:
        if self._experiment.save_checkpoints:
            self.save()
        raise Stopped

    def save(self) -> None:
        """Write the checkpoint; every process takes part. Models that are not finite are lost."""
        self._check_parameters()
        self.saver.save(self.at, self._tally.totals)

    def _check_parameters(self) -> None:
        bad = [slot for slot, finite in enumerate(self.stepper.finite()) if self._processes.any(not finite)]
        self._lose(dict.fromkeys(bad, f"a parameter is NaN or infinite after step {self.at.step}"))

    def resume(self, path: Path, state: State, allowed: Sequence[str] = ()) -> None:
        """Continue where a checkpoint was written.

        Raises:
            BadCheckpoint: it is of another model. InvalidArgument: other settings than those `allowed` differ.
        """
        self.at, self._tally.totals = self.saver.load(path, state, allowed)
        for sentence in self.saver.changed.values():
            self._log.info(f"Resuming with another setting: {sentence}")
        self._write_epoch([])  # for a directory that has the checkpoint of another
        self._log.info(f"Resuming at epoch {self.at.epoch + 1}, iteration {self.at.iteration}, from {path}")


def _not_finite(found: Means) -> str:
    """Say which mean of a validation is no number, nothing if all are; a measure may be infinite."""
    if not math.isfinite(found["loss"]):
        return "the validation loss is NaN or infinite"
    name = next((name for name, value in found.items() if math.isnan(value)), None)
    return "" if name is None else f"the metric {name!r} on held-out data is NaN"
