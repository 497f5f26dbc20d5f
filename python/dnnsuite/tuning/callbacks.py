# SPDX-License-Identifier: MIT
"""Events of a sweep and those that hear of them: callbacks for tools that draw curves, and the display, with the best
trials, a count of each status and the time left, on a terminal and in a notebook, and in a log file a line at
intervals.

`epochs.csv` and `history.csv` are written without a callback.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import dataclass
from html import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._runs import progress as runs
from .._runs.failures import classify
from .._runs.spec import said_of_plugin
from .._shown import metric, setting, table_html
from ..errors import Error, Unavailable
from .algorithms import Plan

if TYPE_CHECKING:
    from rich.console import Console

    from .engine import Engine


def _imported(module: str, what: str, remedy: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise Unavailable(f"{what} is not installed", remedy=remedy) from None


def _plain(config: dict[str, Any]) -> dict[str, Any]:
    return {name: v if isinstance(v, (int, float, str, bool)) else str(v) for name, v in config.items()}


class TensorBoard:
    """Callback that writes a TensorBoard run for each trial below `folder`, with its curves and its configuration.

    Raises:
        Unavailable: tensorboard is not installed.
    """

    def __init__(self, folder: str | Path) -> None:
        made = _imported("torch.utils.tensorboard", "tensorboard", "pip install 'dnnsuite[tensorboard]'")
        self._folder, self._make = Path(folder), made.SummaryWriter
        self._writers: dict[int, Any] = {}

    def __call__(self, event: Event) -> None:
        if event.kind == "finished":
            for writer in self._writers.values():
                writer.close()
            self._writers.clear()
            return
        if event.trial not in self._writers:
            self._writers[event.trial] = self._make(self._folder / f"trial-{event.trial:05d}")
        writer = self._writers[event.trial]
        if event.kind == "epoch":
            for name, value in event.metrics.items():
                writer.add_scalar(name, value, event.epoch)
        else:
            writer.add_text("configuration", str(_plain(event.config)))
            self._writers.pop(event.trial).close()


class WandB:
    """Callback that opens a Weights & Biases run for each trial, all in one group.

    Args:
        group: name of the group.
        options: arguments of `wandb.init`, for example `project="digits"`.

    Raises:
        Unavailable: wandb is not installed.
    """

    def __init__(self, group: str = "sweep", **options: Any) -> None:
        self._wandb = _imported("wandb", "Weights & Biases", "pip install wandb")
        self._group, self._options = group, options
        self._runs: dict[int, Any] = {}

    def __call__(self, event: Event) -> None:
        if event.kind == "epoch":
            if event.trial not in self._runs:
                self._runs[event.trial] = self._wandb.init(
                    group=self._group, name=f"trial-{event.trial}", config=_plain(event.config),
                    reinit="create_new", **self._options,
                )  # fmt: skip
            self._runs[event.trial].log(event.metrics, step=event.epoch)
        elif event.kind == "end" and event.trial in self._runs:
            self._runs.pop(event.trial).finish(exit_code=int(event.status == "failed"))


class MLflow:
    """Callback that opens an MLflow run for each trial.

    Args:
        experiment: name of the experiment, which is created if it does not exist; by default MLflow's own, number 0.

    Raises:
        Unavailable: mlflow is not installed.
    """

    def __init__(self, experiment: str | None = None) -> None:
        made = _imported("mlflow.tracking", "MLflow", "pip install mlflow")
        self._client = made.MlflowClient()
        found = self._client.get_experiment_by_name(experiment) if experiment else None
        if experiment and found is None:
            self._experiment = self._client.create_experiment(experiment)
        else:
            self._experiment = found.experiment_id if found is not None else "0"
        self._runs: dict[int, str] = {}

    def __call__(self, event: Event) -> None:
        if event.kind == "epoch":
            if event.trial not in self._runs:
                run = self._client.create_run(self._experiment, run_name=f"trial-{event.trial}")
                self._runs[event.trial] = run.info.run_id
                for name, value in _plain(event.config).items():
                    self._client.log_param(run.info.run_id, name, value)
            for name, value in event.metrics.items():
                self._client.log_metric(self._runs[event.trial], name, value, step=event.epoch)
        elif event.kind == "end" and event.trial in self._runs:
            status = "FAILED" if event.status == "failed" else "FINISHED"
            self._client.set_terminated(self._runs.pop(event.trial), status)


@dataclass(frozen=True)
class Event:
    """An event in a sweep, which is passed to its callbacks.

    Attributes:
        kind: "epoch", "end" (of a trial), or "finished" (the sweep).
        trial: number of the trial; for a finished sweep, that of the best one.
        config: configuration of the trial.
        epoch: number of epochs that the trial has trained.
        metrics: metrics of the last epoch, by name.
        status: running, paused, stopped, done, pruned, failed or given up.
    """

    kind: str
    trial: int
    config: dict[str, Any]
    epoch: int
    metrics: dict[str, float]
    status: str


class FailedElsewhere(Exception):
    """The failure of a trial in another process, of which its class and sentence are known."""

    def __init__(self, failure: str, message: str) -> None:
        super().__init__(message)
        self.failure, self.message = failure, message


def reason_of(error: BaseException) -> tuple[str, str]:
    """Return (class of a failure, its sentence)."""
    if isinstance(error, FailedElsewhere):
        return error.failure, error.message
    where = "" if isinstance(error, Error) else said_of_plugin(error)
    return classify(error), where or f"{type(error).__name__}: {' '.join(str(error).split())}"


_LINE_EVERY_S = 30.0  # in a log file
_ROWS = 5


class Progress:
    """Display of a sweep. Use it as a context manager.

    Args:
        console: standard error by default, and the output of the cell in a notebook.
        quiet: show nothing.
    """

    def __init__(self, console: Console | None = None, quiet: bool = False) -> None:
        self._live = LiveTable() if console is None and not quiet and in_notebook() else None
        if console is None:
            from rich.console import Console as RichConsole

            console = RichConsole(stderr=True)
        self.plan: Plan | None = None  # its size, once it is known
        self._shown = runs.Progress(console, quiet or self._live is not None)
        self._on_terminal = console.is_terminal and not quiet and self._live is None
        self._began_s = self._told_s = time.monotonic()
        self._trained = 0

    def __enter__(self) -> Progress:
        self._shown.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._shown.__exit__(*exc)

    def tell(self, event: Event, engine: Engine) -> None:
        """Show an epoch or an end."""
        if event.kind == "epoch":
            if self._on_terminal and not self._trained:
                self._shown.stage("sweep", self.plan.epochs if self.plan else 0)
            self._trained += 1
        now_s = time.monotonic()
        if now_s - self._told_s < 0.5:
            return
        if self._on_terminal or self._live is not None:
            self._told_s = now_s
            self._draw(engine)
        elif now_s - self._told_s >= _LINE_EVERY_S:
            self._shown.line(self._line(engine))
            self._told_s = now_s

    def _line(self, engine: Engine) -> str:
        counts = Counter(trial.status for trial in engine.trials.values())
        shown = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
        eta_s = self._eta_s()
        eta = "" if eta_s is None else f"; ETA {runs.clock_text(eta_s)}"
        return f"{shown}; best {_best_text(engine)}{eta}"

    def _eta_s(self) -> float | None:
        if self.plan is None or not self._trained:
            return None
        per_epoch_s = (time.monotonic() - self._began_s) / self._trained
        return max(0.0, per_epoch_s * (self.plan.epochs - self._trained))

    def _draw(self, engine: Engine) -> None:
        columns, rows = _table(engine)
        if self._live is not None:
            self._live.show(table_html(columns, rows, self._line(engine)))
            return
        self._shown.rows(columns, [row[0] for row in rows])
        for row in rows:
            self._shown.row(row[0], **dict(zip(columns[1:], row[1:], strict=True)))
        self._shown.at(self._trained, self._line(engine), self._eta_s())

    def say(self, line: str) -> None:
        """Print a line beside the progress."""
        self._shown.line(line)

    def end(self, line: str) -> None:
        """Print the last line: how the sweep ended."""
        if self._live is not None:
            self._live.show(f"<p>{escape(line)}</p>")
        self._shown.line(line)


def _table(engine: Engine) -> tuple[list[str], list[list[str]]]:
    """Return (columns, a row for each of the best trials)."""
    best = sorted(engine.trials.values(), key=lambda trial: (trial.best[0], trial.number))[:_ROWS]
    columns = ["trial", engine.metric or "value", "epochs", "status", "configuration"]
    return columns, [
        [
            str(trial.number),
            metric(engine.goal.sign * trial.best[0]) if trial.best[1] else "",
            str(trial.epoch),
            trial.status,
            ", ".join(f"{name}={setting(value)}" for name, value in trial.best_config.items()),
        ]
        for trial in best
    ]


def _best_text(engine: Engine) -> str:
    value, trial, _ = engine.best.key
    return "none yet" if trial < 0 else f"{engine.metric} {metric(engine.goal.sign * value)} (trial {trial})"


def in_notebook() -> bool:
    """True in a Jupyter kernel; a shell of IPython is a terminal."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class LiveTable:
    """Piece of HTML in a cell's output, replaced as it changes."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, html: str) -> None:
        """Show `html` where the last one was."""
        from IPython.display import HTML, display  # type: ignore[import-not-found,unused-ignore]

        if self._handle is None:
            self._handle = display(HTML(html), display_id=True)
        else:
            self._handle.update(HTML(html))
