# SPDX-License-Identifier: MIT
"""Files of a throughput measurement: a log per batch size in TBD's line formats, and the table of all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .._files import write_text
from .._lazy import pandas as pd
from .._runs.folder import PlanFolder
from .._runs.rates import Steps
from .._runs.record import RunRecord
from .._runs.samples import SAMPLES_FILE, read_steps

FOLDER, TABLE = "throughput_data", "throughput.csv"
_WINDOWS = 10  # of TimeHistory lines in a log, where there are fewer iterations than TBD's windows have
_TBD_WINDOW = 100  # iterations
_TBD_EVERY = 10  # iterations between two lines of TBD's PyTorch version


def log_of(root: Path, batch_size: int) -> Path:
    """Path of the log of a batch size."""
    return root / FOLDER / f"batch_{batch_size}.log"


def save_log(root: Path, run: RunRecord, directory: Path) -> None:
    """Write `throughput_data/batch_N.log` of a run; the log of the size's last run stays."""
    path = log_of(root, run.batch_size)
    path.parent.mkdir(exist_ok=True)
    if run.ok:
        lines = log_lines(read_steps(directory / SAMPLES_FILE).without_gaps(), run)
    else:
        lines = iter([f"{run.verdict.failure}: {run.verdict.message}"])
    write_text(path, "\n".join([*lines, ""]))


def log_lines(steps: Steps, run: RunRecord) -> Iterator[str]:
    """Lines as TBD's two versions print them: TimeHistory for each window, and the batch throughput so far.

    Averages are items over time; the original's PyTorch version averages rates, which overstates where steps differ.
    """
    per_step = run.items_per_step
    counts = [round(items / per_step) for items in steps.items]
    total, dropped = sum(counts), run.window["dropped"]
    window = min(_TBD_WINDOW, max(1, total // _WINDOWS))
    done, last, at_ns = 0, 0, int(steps.starts_ns[0])
    counted_ns, counted = 0, 0
    for i, count in enumerate(counts):
        took_ns = int(steps.stops_ns[i] - steps.starts_ns[i])
        done += count
        if i >= dropped:
            counted_ns, counted = counted_ns + took_ns, counted + count
            if done % _TBD_EVERY < count or i == len(counts) - 1:
                yield _progress(done, total, took_ns * 1e-9 / count, counted_ns * 1e-9 / counted, per_step)
        if done - last >= window or i == len(counts) - 1:
            seconds = (int(steps.stops_ns[i]) - at_ns) * 1e-9
            rate = (done - last) * per_step / seconds
            yield (f"TimeHistory: {seconds:.2f} seconds, {rate:.2f} examples/second between steps {last} and {done}")
            last, at_ns = done, int(steps.stops_ns[i])


def _progress(done: int, total: int, now_s: float, mean_s: float, per_step: float) -> str:
    place = f"[{done:{len(str(total))}d}/{total}]"
    rate = f"{per_step / now_s:6.3f} ({per_step / mean_s:6.3f}) samples/s"
    return f"Epoch: [0]{place}\tTime {now_s:6.3f} ({mean_s:6.3f})\tBatch throughput {rate}"


def save_table(folder: PlanFolder) -> pd.DataFrame:
    """Write `throughput.csv` of the finished runs: a row per batch size. They are of one request, so all are alike."""
    from .. import results

    made = results.by_batch_size(results.load(folder.root), allow_unlike=True)
    results.save_csv(made, folder.root / TABLE)
    return made
