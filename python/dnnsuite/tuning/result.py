# SPDX-License-Identifier: MIT
"""The result of a sweep: a table of its trials, their history, and the best model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._files import replacing_folder, write_text
from .._fuse.coverage import Coverage
from .._shown import duration, metric, setting
from ..errors import InvalidArgument
from .algorithms import Plan
from .trial import Trial

if TYPE_CHECKING:
    import pandas as pd
    import torch
    from matplotlib.figure import Figure


def table_of(trials: Sequence[Trial], metric: str, sign: float) -> pd.DataFrame:
    """Return a row per trial, by number: its best value, the epoch of it and the configuration then, epochs, status,
    seconds; and what differed when it was resumed, where that was allowed."""
    import pandas as pd

    rows = []
    for trial in trials:
        value, epoch = trial.best
        own = {
            name if name not in (metric, *_COLUMNS) else f"config.{name}": v for name, v in trial.best_config.items()
        }
        rows.append(
            {"trial": trial.number, **own, metric: sign * value if epoch else float("nan"), "best_epoch": epoch,
             "epochs": trial.epoch, "status": trial.status, "seconds": trial.seconds, "message": trial.message}
        )  # fmt: skip
    found = pd.DataFrame(rows).set_index("trial") if rows else pd.DataFrame()
    changed = ["; ".join(trial.changed.values()) for trial in trials]
    return found.assign(changed=changed) if any(changed) else found


_COLUMNS = ("trial", "best_epoch", "epochs", "status", "seconds", "message", "changed")


@dataclass(eq=False)
class Sweep:
    """A finished sweep.

    Attributes:
        table: a row per trial, in the order of their numbers, with hyper-parameters such as `lr` as columns.
        history: a row per trial and epoch, with every metric.
        trajectory: the best value so far, over the seconds since the sweep began.
        best_trial: number of the best trial.
        best_config, best_value: configuration of the best trial, and its value at its best epoch.
        state_dicts: weights of the best trials after their best epochs, by number, the best first; a shared base is not
            included.
        metric, goal: metric that trials were compared by, and its direction (min or max).
        epochs: number of model-epochs trained.
        epochs_from_scratch: number of model-epochs of the same search if each rung started from scratch.
        out: the directory; None if nothing was written.
        seconds: duration of the sweep in this process, s.
        resumed: True if it continued trials of an earlier process, whose time is not included in `seconds`.
        changed: differences when it was resumed, as sentences by name; the table shows which trials they concern.
    """

    trials: list[Trial] = field(repr=False)
    metric: str
    goal: str
    best_trial: int
    state_dicts: Mapping[int, dict[str, Any]] = field(repr=False)
    seconds: float
    out: Path | None
    changed: Mapping[str, str] = field(default_factory=dict)
    resumed: bool = False
    points: Sequence[tuple[float, float]] = field(repr=False, default=())
    plan: Plan | None = field(repr=False, default=None)
    covers: Sequence[Coverage] = field(repr=False, default=())
    rebuild: Callable[[Trial], torch.nn.Module] = field(repr=False, default=lambda trial: None)  # type: ignore[assignment]

    @property
    def _sign(self) -> float:
        return 1.0 if self.goal == "min" else -1.0

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row per trial."""
        return table_of(self.trials, self.metric, self._sign)

    @cached_property
    def history(self) -> pd.DataFrame:
        """A row per trial and epoch, with its metrics."""
        import pandas as pd

        rows = [{"trial": t.number, "epoch": i, **row} for t in self.trials for i, row in enumerate(t.history, 1)]
        return pd.DataFrame(rows)

    @cached_property
    def trajectory(self) -> pd.DataFrame:
        """The best value so far over the seconds since the sweep began."""
        import pandas as pd

        return pd.DataFrame(list(self.points), columns=["timestamp", self.metric])

    @property
    def _best(self) -> Trial:
        return next(trial for trial in self.trials if trial.number == self.best_trial)

    @property
    def best_config(self) -> Mapping[str, Any]:
        """The configuration that the best epoch was trained with."""
        return dict(self._best.best_config)

    @property
    def best_value(self) -> float:
        """The best value of the metric."""
        return self._sign * self._best.best[0]

    @property
    def epochs(self) -> int:
        """Number of model-epochs that were trained."""
        return sum(trial.epoch for trial in self.trials)

    @property
    def epochs_from_scratch(self) -> int:
        """Number of model-epochs of the same search if every rung started from scratch."""
        return self.plan.epochs_from_scratch if self.plan else self.epochs

    @cached_property
    def best_model(self) -> torch.nn.Module:
        """The best model, as an ordinary torch module in eval mode."""
        return self._model(self.best_trial)

    @property
    def best_state_dict(self) -> dict[str, Any]:
        """Weights of the best trial after its best epoch, with the names of the plain model."""
        return self.state_dicts.get(self.best_trial, {})

    def _model(self, number: int) -> torch.nn.Module:
        model = self.rebuild(next(trial for trial in self.trials if trial.number == number))
        model.load_state_dict({**model.state_dict(), **self.state_dicts[number]})
        return model.eval()

    def save_pretrained(self, folder: str | Path) -> list[Path]:
        """Save the best models (`keep` of the sweep) in `folder/best-1`, `folder/best-2` and so on, with a model card.

        Each folder contains what the model's `save_pretrained` writes; adapters can be loaded by PEFT and
        `dnnsuite.adapt`. `folder/README.md` has the table of all trials.

        Raises:
            InvalidArgument: the models have no `save_pretrained`.
        """
        folders = []
        for place, number in enumerate(self.state_dicts, 1):
            model: Any = self._model(number)
            if not hasattr(model, "save_pretrained"):
                raise InvalidArgument(f"a {type(model).__name__} has no save_pretrained: use best_model.state_dict()")
            folders.append(Path(folder) / f"best-{place}")
            with replacing_folder(folders[-1]) as temporary:
                model.save_pretrained(str(temporary))
        write_text(Path(folder) / "README.md", card_of(self))
        return folders

    def plot(self, save: str | Path | None = None, parameters: Sequence[str] | None = None) -> Figure:
        """Draw the search: history, parallel coordinates, importance of the hyper-parameters, and a slice along each.

        Args:
            save: file to write, ending in .png, .pdf or .svg; None writes none.
            parameters: hyper-parameters to draw, by their columns in `table`; by default the six most important.

        Raises:
            InvalidArgument: no trial has a value, nothing varies, or a name is unknown.
        """
        from .. import plots

        figure = plots.sweep(self.table, self.history, self.metric, self.goal, parameters)
        if save is not None:
            plots.save(figure.axes[0], save)
        return figure

    def coverage(self) -> Coverage:
        """List how each part of the models ran, like `coverage()` of an array, for models of each shape in turn.

        The list is empty if the sweep was resumed and nothing was left to train.

        Raises:
            InvalidArgument: this process trained nothing in arrays, because of the mode or the devices.
        """
        if not self.covers and not self.resumed:
            raise InvalidArgument(
                "this process trained no trial in an array, because of the mode or the devices: see "
                "dnnsuite.fuse([make_model(config), ...]) and its coverage()"
            )
        return Coverage(dict.fromkeys(cover for covers in self.covers for cover in covers))

    def describe(self) -> str:
        """Return one line with the best trial and the cost of the sweep."""
        config = ", ".join(f"{name}={setting(value)}" for name, value in self.best_config.items())
        saved = self.epochs_from_scratch - self.epochs
        rungs = f", {saved} fewer than from scratch" if self.plan and saved > 0 else ""
        since = " since the resume" if self.resumed else ""
        return (
            f"trial {self.best_trial} of {len(self.trials)} is the best: {self.metric} {metric(self.best_value)} "
            f"({self.goal}) with {config} "
            f"({self.epochs} model-epochs{rungs}, {duration(self.seconds)}{since})"
        )

    def __str__(self) -> str:
        return f"{self.describe()}\n{self._best_first().drop(columns='message').head(5).to_string()}"

    def _best_first(self) -> pd.DataFrame:
        return self.table.sort_values(self.metric, ascending=self.goal == "min", kind="stable")

    def _repr_html_(self) -> str:
        table = self._best_first().reset_index()  # what `describe` says, the end of the progress has shown
        return table.drop(columns=() if table["message"].any() else "message").to_html(index=False, max_rows=20)

    def save(self, directory: Path) -> None:
        """Write `trials.csv`, `history.csv` in HFHT's format, `epochs.csv` and `trajectory.csv`."""
        write_text(directory / "trials.csv", self.table.to_csv())
        write_text(directory / "epochs.csv", self.history.to_csv(index=False))
        write_text(directory / "trajectory.csv", self.trajectory.to_csv(index=False))
        write_text(directory / "history.csv", hfht_history(self.trials).to_csv(index=False))


def card_of(sweep: Sweep) -> str:
    """Return a page on a sweep's best models: where they are, and the table of its trials."""
    table = sweep.table.sort_values(sweep.metric, ascending=sweep.goal == "min", kind="stable")
    names = [name for name in table.columns if name not in ("message", "seconds")]
    rows = [["trial", *names], ["---"] * (len(names) + 1)]
    rows += [[str(number), *(setting(row[name]) for name in names)] for number, row in table.iterrows()]
    kept = [f"- `best-{place}`: trial {number}" for place, number in enumerate(sweep.state_dicts, 1)]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(["# The best of a search", "", f"{sweep.describe()}.", "", *kept, "", "## Trials", "", *lines, ""])


def hfht_history(trials: Sequence[Trial]) -> pd.DataFrame:
    """HFHT's table: id, early_stop, runtime, iterations, `params.*` and `result.*` of each trial's last epoch."""
    import pandas as pd

    return pd.DataFrame([
        {"id": t.number, "early_stop": t.status in ("stopped", "pruned"), "runtime": t.seconds, "iterations": t.epoch,
         **{f"params.{name}": value for name, value in t.config_at(t.epoch).items()},
         **{f"result.{name}": value for name, value in (t.history[-1] if t.history else {}).items()}}
        for t in trials
    ])  # fmt: skip
