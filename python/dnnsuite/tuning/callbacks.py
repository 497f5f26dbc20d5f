# SPDX-License-Identifier: MIT
"""Events of a sweep, and callbacks that take them, for tools that draw curves.

`epochs.csv` and `history.csv` are written without one.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from .._runs.failures import classify
from .._runs.spec import said_of_plugin
from ..errors import Error, Unavailable


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
