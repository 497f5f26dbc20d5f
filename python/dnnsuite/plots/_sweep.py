# SPDX-License-Identifier: MIT
"""Figure of a search: history, parallel coordinates, importance of the hyper-parameters, a slice along each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._lazy import pandas as pd
from ..errors import InvalidArgument, did_you_mean
from ._style import BLUE, VERMILION

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MAP = "viridis_r"  # dark is good, also in grey
_MOST = 6  # hyper-parameters of a figure: the most important ones
_LOGARITHMIC = 50.0  # quotient of the ends of a range from which on its axis may be logarithmic
_PARTS = 3  # of a parameter's range, between which importance compares


def sweep(
    table: pd.DataFrame, history: pd.DataFrame, metric: str, goal: str, parameters: Sequence[str] | None = None
) -> Figure:
    """Draw a search: each trial's metric over epochs, parallel coordinates, importance, and a slice per parameter.

    Args:
        table: a row per trial, as :attr:`dnnsuite.tuning.Sweep.table`.
        history: a row per trial and epoch, as :attr:`dnnsuite.tuning.Sweep.history`.
        metric: name of the metric by which the trials were compared.
        goal: `min` or `max`.
        parameters: hyper-parameters to draw; by default the six of most importance among those that vary.

    Raises:
        InvalidArgument: no trial has a value, nothing varies, or a name is none of a hyper-parameter.
    """
    from matplotlib.figure import Figure

    rated = table[np.isfinite(table[metric].astype(float))]
    if rated.empty:
        raise InvalidArgument(f"nothing to draw: no trial has a value of {metric}")
    weight = importance(rated, metric)
    if odd := next((name for name in parameters or () if name not in weight), None):
        raise InvalidArgument(
            f"{odd!r} is not a hyper-parameter that varies{did_you_mean(odd, weight)}: {', '.join(weight)}"
        )
    names = list(parameters or sorted(weight, key=lambda name: -weight[name])[:_MOST])
    if not names:
        raise InvalidArgument("nothing to draw: no hyper-parameter varies between the trials")
    across = max(3, min(len(names), 3))
    rows = 2 + -(-len(names) // across)
    figure = Figure(figsize=(10.5, 2.9 * rows), layout="constrained")
    cells = figure.add_gridspec(rows, across)
    colours = _Colours(rated[metric].astype(float), goal)
    _history(figure.add_subplot(cells[0, : across - 1]), rated, history, metric, colours)
    _importance(figure.add_subplot(cells[0, across - 1]), {name: weight[name] for name in names})
    _parallel(figure.add_subplot(cells[1, :]), rated, names, metric, colours)
    for index, name in enumerate(names):
        _slice(figure.add_subplot(cells[2 + index // across, index % across]), rated, name, metric, colours)
    best = rated.loc[colours.best]
    what = ", ".join(f"{name}={_short(best[name])}" for name in names)
    figure.suptitle(
        f"{len(table)} trials, best {metric} {best[metric]:.4g} ({goal}): trial {colours.best}, {what}", size=9
    )
    return figure


def importance(table: pd.DataFrame, metric: str) -> dict[str, float]:
    """Return the share of the trials' ranks that each hyper-parameter explains alone, in 0 to 1.

    Ranks of the metric are compared between thirds of a number's range, or between the values of a choice: one less
    the variance within them over the variance of all, both by their degrees of freedom (epsilon squared of the
    Kruskal-Wallis test), so that chance gives 0. Effects of combinations of parameters are not included.
    """
    columns = list(table.columns)
    names = [str(name) for name in columns[: columns.index(metric)] if table[name].astype(str).nunique() > 1]
    ranks = table[metric].astype(float).rank()
    total = float(((ranks - ranks.mean()) ** 2).sum())
    found = {}
    for name in names:
        values: Any = table[name]  # a choice, or few values, divide the trials by itself; a range in thirds
        if not _is_number(values) or values.nunique() <= _PARTS:
            parts = values.astype(str).to_numpy()
        else:
            parts = np.minimum((values.rank(method="average").to_numpy() - 1) * _PARTS // len(values), _PARTS - 1)
        groups = ranks.groupby(parts)
        spread = len(table) - groups.ngroups
        within = float(groups.apply(lambda own: ((own - own.mean()) ** 2).sum()).sum())
        explained = 1 - within / spread * (len(table) - 1) / total if spread > 0 and total > 0 else 0.0
        found[name] = max(0.0, explained)
    return found


def _is_number(values: pd.Series) -> bool:
    return values.dtype.kind in "if"


class _Colours:
    """Colours of trials by the rank of their value, and the number of the best."""

    def __init__(self, values: pd.Series, goal: str) -> None:
        import matplotlib as mpl

        worst_first = values.rank(ascending=goal == "max", method="first", pct=True)
        self._of = {trial: mpl.colormaps[_MAP](0.1 + 0.9 * share) for trial, share in worst_first.items()}
        self.best: Any = worst_first.idxmax()
        self.order = list(worst_first.sort_values().index)  # good ones are drawn over bad ones

    def __getitem__(self, trial: Any) -> Any:
        return self._of[trial]


def _history(ax: Axes, table: pd.DataFrame, history: pd.DataFrame, metric: str, colours: _Colours) -> None:
    from matplotlib.ticker import MaxNLocator

    by_trial = dict(iter(history.groupby("trial")))
    for trial in (trial for trial in colours.order if trial in by_trial):
        best = trial == colours.best
        own = by_trial[trial]
        ax.plot(
            own["epoch"],
            own[metric],
            color=colours[trial],
            lw=2.2 if best else 0.9,
            marker="." if len(own) == 1 else "",
        )
    ax.set(xlabel="epoch", ylabel=metric, title="history, the best trial bold")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(alpha=0.3)


def _importance(ax: Axes, weight: dict[str, float]) -> None:
    names = list(weight)[::-1]
    ax.barh(names, [weight[name] for name in names], color=BLUE, height=0.6)
    for row, name in enumerate(names):
        ax.annotate(f"{weight[name]:.2f}", (weight[name], row), (4, -3), textcoords="offset points", fontsize=8)
    ax.set(xlim=(0, 1), title="importance: share of the ranks")


def _parallel(ax: Axes, table: pd.DataFrame, names: list[str], metric: str, colours: _Colours) -> None:
    """A line per trial through an axis per parameter and one for the metric, each from 0 to 1."""
    axes = [*names, metric]
    scaled = {}
    for place, name in enumerate(axes):
        scaled[name], ticks = _scaled(table[name])
        for height, text in ticks:
            ax.annotate(text, (place, height), (4, 0), textcoords="offset points", fontsize=8, va="center")
        ax.axvline(place, color="0.6", lw=0.8)
    for trial in colours.order:
        line = [scaled[name][table.index.get_loc(trial)] for name in axes]
        ax.plot(range(len(axes)), line, color=colours[trial], lw=2.2 if trial == colours.best else 0.9, alpha=0.8)
    ax.set_xticks(range(len(axes)), axes)
    ax.set_yticks([])
    ax.set(xlim=(-0.1, len(axes) - 0.75), title=f"parallel coordinates, coloured by {metric}")
    ax.spines[["top", "left", "right", "bottom"]].set_visible(False)


def _scaled(values: pd.Series) -> tuple[Any, list[tuple[float, str]]]:
    """Return values from 0 to 1, and (height, text) of ticks."""
    if not _is_number(values):
        texts = values.astype(str)
        kinds = sorted(set(texts))
        step = 1 / max(1, len(kinds) - 1)
        return [kinds.index(text) * step for text in texts], [(i * step, _short(kind)) for i, kind in enumerate(kinds)]
    raw = values.astype(float).to_numpy()
    way = np.log if _is_logarithmic(values) else np.asarray
    low, high = float(np.nanmin(raw)), float(np.nanmax(raw))
    span = float(way(high) - way(low)) or 1.0
    return (way(raw) - way(low)) / span, [(0.0, _short(low)), *([(1.0, _short(high))] if high > low else [])]


def _is_logarithmic(values: pd.Series) -> bool:
    """Return True for a wide range whose median lies nearer to the middle by logarithms than by values."""
    low, middle, high = values.min(), values.median(), values.max()
    if not (low > 0 and high / low >= _LOGARITHMIC):
        return False
    by_value = (middle - low) / (high - low)
    return bool(abs(np.log(middle / low) / np.log(high / low) - 0.5) < abs(by_value - 0.5))


def _slice(ax: Axes, table: pd.DataFrame, name: str, metric: str, colours: _Colours) -> None:
    values, drawn = table[name], list(table.index)
    if not _is_number(values):
        values = values.astype(str)
        kinds = sorted(set(values))
        ax.set_xticks(range(len(kinds)), [_short(kind) for kind in kinds])
        values = values.map(kinds.index)
    ax.scatter(values, table[metric].astype(float), c=[colours[trial] for trial in drawn], s=22)
    ax.scatter(
        [values[colours.best]], [table[metric][colours.best]], s=90, facecolors="none", edgecolors=VERMILION, lw=1.6
    )
    if _is_number(table[name]) and _is_logarithmic(table[name]):
        ax.set_xscale("log")
    ax.set(xlabel=name, ylabel=metric)
    ax.grid(alpha=0.3)


def _short(value: Any) -> str:
    text = f"{value:.3g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 16 else f"{text[:15]}…"
