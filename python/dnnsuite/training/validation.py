# SPDX-License-Identifier: MIT
"""Validation over every sample, of each model of a run, and of a checkpoint by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .._runs.progress import Progress
from .._runs.words import choose_device
from .array_stepper import ArrayStepper
from .experiment import Experiment
from .lines import LINES, Lines, Log, Window, accuracies
from .loading import Feed
from .processes import Processes
from .saver import check_fits, read_checkpoint, refuse_array
from .stepper import Stepper, Tally


def validate(
    experiment: Experiment,
    stepper: Stepper | ArrayStepper,
    feed: Feed,
    processes: Processes,
    lines: Lines,
    epoch: int = 0,
    between: Callable[[], None] = lambda: None,
) -> list[dict[str, float]]:
    """Validate each model of `stepper` on every sample of the validation part.

    Args:
        experiment: the run, or the first of an array's.
        stepper: models to validate.
        feed: batches.
        processes: processes of the run, which share the samples.
        lines: log.
        epoch: number of the epoch, for the log.
        between: called after each batch; may raise.

    Returns:
        Means over the samples, by metric, for each model.
    """
    tally = Tally(experiment.metrics.names, len(stepper.numbers))
    stepper.model.eval()
    batches = -(-len(experiment.data.valid) // (experiment.valid_batch_size * processes.world_size))
    mark_s, items = time.monotonic(), 0
    for i, (share, batch) in enumerate(feed.validation(stepper.numbers)):
        tally.add(stepper.validate(*stepper.place(batch)), share.counted)
        items += share.counted
        if i % experiment.log_every == 0:
            before, count = [list(each) for each in tally.totals], len(tally)
            tally.collect()
            now_s = time.monotonic()
            means = tally.since(before)
            lines.validated(Window(epoch, i, batches, i + 1, count, now_s - mark_s, 0.0, items, means))
            mark_s, items = now_s, 0
        between()
    tally.collect()
    return [tally.means(processes.total(each)) for each in tally.totals]


def evaluate(
    experiment: Experiment | Callable[[str], Experiment],
    checkpoint: str | Path,
    *,
    device: str = "auto",
    quiet: bool = False,
) -> Mapping[str, Any]:
    """Validate the model in a checkpoint: loss and metrics over every sample of the validation data. Nothing is
    written.

    Args:
        experiment: the run that the checkpoint belongs to, or a function that makes it for a device.
        checkpoint: checkpoint.pt or best.pt of a run of one model, or of one model of an array.
        device: auto, cpu or cuda.
        quiet: print nothing.

    Returns:
        The mean of each metric.

    Raises:
        BadCheckpoint: the checkpoint is missing or damaged, or belongs to another model.
    """
    kind = choose_device(device)
    processes = Processes(kind)
    try:
        made = experiment if isinstance(experiment, Experiment) else experiment(kind)
        path = Path(checkpoint)
        state = read_checkpoint(path)
        refuse_array(path, state)
        stepper = Stepper(made, processes)
        check_fits(path, state, stepper.model)
        stepper.model.load_state_dict(state["model"])
        feed = Feed([made], processes)
        with Log(None, None if quiet or not processes.first else Progress()) as log:
            lines = LINES["tbd-pytorch"](log)
            try:
                (found,) = validate(made, stepper, feed, processes, lines)
            finally:
                feed.close()
            log.plain(accuracies(found))
        return found
    finally:
        processes.close()
