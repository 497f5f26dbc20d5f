# SPDX-License-Identifier: MIT
"""The loop of a run: epochs of training and validation, checkpoints, and a clean stop between two steps."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from .._runs.failures import NotFinite
from .._runs.interrupts import pending
from .._runs.samples import Sample
from .checkpoints import (
    BEST,
    CHECKPOINT,
    State,
    check_fits,
    random_state,
    refuse_other_identity,
    save_checkpoint,
    set_random_state,
)
from .experiment import Experiment
from .history import EventFiles, Row, save_metrics
from .loading import Loader
from .log import Log
from .order import share_of, validation_batches
from .phases import Phases
from .processes import Processes
from .stepper import Stepper
from .tally import Tally

__all__ = ["Loop", "Position", "Stopped"]


class Stopped(Exception):
    """A signal arrived; all is saved, and the loop has ended between two steps."""


@dataclass
class Position:
    """Place in a run: `epoch` is the one under way, from 0; `iteration` the next in it; `step` over the run."""

    epoch: int = 0
    iteration: int = 0
    step: int = 0
    seconds: float = 0.0  # of training, in this epoch
    minutes: float = 0.0  # of everything, over the run
    best: float = -math.inf
    history: list[Row] = field(default_factory=list)


class Loop:
    """Trains an experiment. Every process of the run has one; the first writes the files.

    Args:
        folder: of the run; None in other processes.
        events: TensorBoard's files, if wanted.
    """

    def __init__(
        self,
        experiment: Experiment,
        processes: Processes,
        folder: Path | None,
        log: Log,
        events: EventFiles | None = None,
    ) -> None:
        self._experiment, self._processes = experiment, processes
        self._folder, self._log, self._events = folder, log, events
        self.order = experiment.order
        self.stepper = Stepper(experiment, processes)
        self.schedule = experiment.schedule(self.stepper.optimizer, self.order.steps)
        pinned = processes.device.type == "cuda"
        data, workers = experiment.data, experiment.workers
        self._train_loader = Loader(data.train, experiment.seed, workers, pinned)
        self._valid_loader = Loader(data.valid, experiment.seed, workers, pinned)
        profiled = self.order.steps if experiment.profile else 0
        self.phases = Phases(profiled, cuda=pinned)
        self.at = Position()
        self.samples: list[Sample] = []
        self._tally = Tally(experiment.metrics.names)
        self._mark_ns = self._mark_items = 0
        self._began_s = 0.0
        self.after_epoch: Callable[[], None] = lambda: None  # may be replaced

    def run(self) -> None:
        """Train to the last epoch.

        Raises:
            Stopped: a signal arrived, and a checkpoint was written.
            NotFinite: a loss or a parameter became NaN or infinite; the last checkpoint is from before.
            LostWorker: a process that prepares batches has ended.
        """
        total = self._experiment.epochs * self.order.steps
        self._began_s = time.monotonic() - 60 * self.at.minutes
        self._log.begin(self._experiment.name, total, self.at.step)
        self._log.info("Starting Training Loop...")
        try:
            while self.at.epoch < self._experiment.epochs:
                self._epoch()
        except RuntimeError as error:  # torch tells of a dead worker wherever the main thread is
            self._train_loader.check(error)
            self._valid_loader.check(error)
            raise
        finally:
            self._train_loader.close()
            self._valid_loader.close()

    def _epoch(self) -> None:
        epoch, window = self.at.epoch, self._experiment.profile
        began_s = time.monotonic()
        if not self.at.iteration:
            self.schedule.begin_epoch(epoch)
        with self.phases.profiled(epoch + 1, window is not None and window.epoch == epoch + 1):
            self._train()
        trained = self._tally.means(self._processes.total(self._tally.totals))
        self._processes.same_buffers(self.stepper.model)
        valid_began_s = time.monotonic()
        valid = self._validate()
        valid_s = time.monotonic() - valid_began_s
        self.schedule.end_epoch(epoch, valid["loss"])
        self._end_epoch(trained, valid, valid_s)
        self._log.info(f"Time taken for epoch {epoch + 1} is {time.monotonic() - began_s} sec")
        if "acc1" in valid:
            self._log.info(f"train acc1={trained['acc1']}, valid acc1={valid['acc1']}")

    def _train(self) -> None:
        at, rank, world_size = self.at, self._processes.rank, self._processes.world_size
        self.stepper.model.train()
        shares = [
            share_of(batch, at.epoch, rank, world_size)
            for batch in self.order.batches(at.epoch, at.iteration)
        ]
        batches = self._train_loader(shares)
        self._mark_ns, self._mark_items = time.monotonic_ns(), 0
        for i in range(at.iteration, self.order.steps):
            with self.phases.iteration(i):
                with self.phases.data:
                    share, batch = next(batches)
                    inputs, labels = self.stepper.place(batch)
                self.schedule.begin_step(at.step)
                loss, counts = self.stepper.train(inputs, labels, share, self.phases)
            self._tally.add(loss, counts, share.counted)
            self._mark_items += share.whole
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
        steps = len(self._tally)
        bad = self._processes.least(self._tally.collect())
        if not steps:
            return
        if math.isfinite(bad):
            wrong = self.at.step - steps + int(bad)
            self._not_finite(
                "the loss",
                f"in step {wrong} (epoch {self.at.epoch + 1}, iteration {i - steps + 1 + int(bad)})",
            )
        now_ns, rate = time.monotonic_ns(), 0.0
        took_ns, items = now_ns - self._mark_ns, self._mark_items
        rate = items / (took_ns * 1e-9)
        self.at.seconds += took_ns * 1e-9
        phase = "warmup" if not self.samples else "train"
        self.samples.append(Sample(self.at.epoch, self._mark_ns, now_ns, items, phase))
        if i:  # a line for the first iteration would tell of one batch, and of what only starts
            self._log.info(f"Epoch: {self.at.epoch + 1}, Iteration: {i}, Avg img/sec: {rate}")
        total = self._experiment.epochs * self.order.steps
        text = f"epoch {self.at.epoch + 1}/{self._experiment.epochs}  {rate:,.0f} img/s"
        self._log.at(self.at.step, total, text)
        self._mark_ns, self._mark_items = time.monotonic_ns(), 0

    def _validate(self) -> dict[str, float]:
        """Means over every sample of the validation part."""
        experiment, processes = self._experiment, self._processes
        tally = Tally(experiment.metrics.names)
        self.stepper.model.eval()
        shares = list(
            validation_batches(
                len(experiment.data.valid), experiment.valid_batch_size, processes.rank, processes.world_size
            )
        )
        for i, (share, batch) in enumerate(self._valid_loader(shares)):
            tally.add(*self.stepper.validate(*self.stepper.place(batch)), share.counted)
            if i % experiment.log_every == 0:
                tally.collect()
            if processes.world_size == 1 and pending():
                self._stop()
        tally.collect()
        if processes.any(pending()):
            self._stop()
        return tally.means(processes.total(tally.totals))

    def _end_epoch(self, trained: dict[str, float], valid: dict[str, float], valid_s: float) -> None:
        """Note the epoch, in the files too, and begin the next."""
        at, optimizer = self.at, self.stepper.optimizer
        if not math.isfinite(valid["loss"]):
            self._not_finite("the validation loss", f"after epoch {at.epoch + 1} (step {at.step})")
        row: Row = {
            "epoch": at.epoch + 1,
            "step": at.step,
            "learning_rate": float(optimizer.param_groups[0]["lr"]),
        }
        for name in valid:
            row |= {f"{name}/train": trained[name], f"{name}/valid": valid[name]}
        at.minutes = (time.monotonic() - self._began_s) / 60
        items = sum(sample.items for sample in self.samples if sample.epoch == at.epoch)
        seconds = sum(s.stop_ns - s.start_ns for s in self.samples if s.epoch == at.epoch) * 1e-9
        row |= {"images_per_s": items / seconds if seconds else math.nan}
        row |= {"seconds/train": at.seconds, "seconds/valid": valid_s, "minutes": at.minutes}
        at.history.append(row)
        at.epoch, at.iteration, at.seconds = at.epoch + 1, 0, 0.0
        self._tally = Tally(self._experiment.metrics.names)
        self._save_epoch(valid)
        if self._folder is not None:
            save_metrics(self._folder, at.history)
        if self._events is not None:
            self._events.add(row)
        self.after_epoch()

    def _save_epoch(self, valid: dict[str, float]) -> None:
        score = valid.get("acc1", -valid["loss"])
        better = score > self.at.best
        self.at.best = max(score, self.at.best)
        if self._experiment.save_checkpoints:
            self.save()
            if better and self._folder is not None:
                state = {"model": self.stepper.model.state_dict(), "epoch": self.at.epoch, "valid": valid}
                save_checkpoint(self._folder / BEST, state)

    def _stop(self) -> None:
        if self._experiment.save_checkpoints:
            self.save()
        raise Stopped

    def _not_finite(self, what: str, where: str) -> None:
        last = self._folder / CHECKPOINT if self._folder else None
        kept = (
            f"; the last good checkpoint is {last}"
            if last and last.is_file()
            else "; there is no checkpoint yet"
        )
        raise NotFinite(f"{what} is NaN or infinite {where}{kept}")

    def save(self) -> None:
        """Write the checkpoint; every process takes part."""
        totals = self._processes.total(self._tally.totals)
        random = self._processes.gathered(random_state(self._processes.device))
        if not self.stepper.finite():
            self._not_finite("a parameter", f"after step {self.at.step}")
        if self._folder is None:
            return
        state: State = {
            **self.stepper.state(),
            "schedule": self.schedule.state_dict(),
            "random": random,
            "position": {**vars(self.at), "history": [dict(row) for row in self.at.history]},
            "totals": totals,
            "identity": self._experiment.identity,
        }
        save_checkpoint(self._folder / CHECKPOINT, state)

    def resume(self, path: Path, state: State) -> None:
        """Go on where a checkpoint was written.

        Raises:
            BadCheckpoint: it is of another model. InvalidArgument: it was made with other settings.
        """
        check_fits(path, state, self.stepper.model)
        refuse_other_identity(path, state["identity"], self._experiment.identity)
        self.stepper.load(state)
        self.schedule.load_state_dict(state["schedule"])
        self.at = Position(**state["position"])
        if self._processes.first:
            self._tally.totals = list(state["totals"])
        own = self._processes.rank
        if own < len(state["random"]):
            set_random_state(state["random"][own], self._processes.device)
        else:
            torch.manual_seed(self._experiment.seed + own + self.at.step)
        self._log.info(f"Resuming at epoch {self.at.epoch + 1}, iteration {self.at.iteration}, from {path}")
