# SPDX-License-Identifier: MIT
"""Judgement on two trainings that should differ by rounding alone, and its files: losses as CSV, the figure, the
verdict.

A network is chaotic: rounding errors grow from step to step until two right runs have losses of their own. So no fixed
tolerance will do. The measure is a control: the same models trained alone in float64 (in float64 itself, with their
sums in another order), which are as far from the models alone as those are from what is exact. The array may be, at
each iteration, as far from the models alone as the control was up to about there, times `MARGIN`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import results
from ..._files import read_json, write_json
from ..._lazy import numpy as np
from ..._lazy import pandas as pd
from ...errors import InvalidArgument, reason

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...plots import Drawn, Request
    from .plan import ConvergenceSettings

# Right arrays were seen up to 4 times as far as the control (they round in other places, too); wrong ones 1000 times.
MARGIN = 10.0
# An optimizer that divides by the size of gradients makes steps of roundings, so drift sets in sooner or later.
# The first losses are before any update.
_LAG = 3
# Of accuracies: as good as equal within five standard errors of a share of 512 samples, or within the control's spread.
_SPREAD, _SPREADS = 0.11, 3.0
_ROUNDINGS = 64  # of one number: a difference within these is none, whatever the control had the luck to do
_EPSILON = {"fp64": 2.0**-52, "fp32": 2.0**-23, "amp": 2.0**-8, "bf16": 2.0**-8}

Losses = Sequence[Sequence[float]]
Weights = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Verdict:
    """Verdict, same or different, with the differences: relative, and the largest over all models.

    Attributes:
        same: the array trains as its models do alone.
        loss, loss_control: difference of losses averaged over `smooth` iterations: of the array and of the control
            from the models alone.
        raw: difference of losses of single iterations.
        weights, weights_control: distance of weights at the end, relative to how far training moved them.
        accuracy, accuracy_control: largest difference of accuracies on held-out data; None where there are none.
        iteration, model: first place where the array was further away than the control allows; None without one.
        margin: factor by which it may be further away than the control.
    """

    same: bool
    loss: float
    loss_control: float
    raw: float
    weights: float
    weights_control: float
    accuracy: float | None
    accuracy_control: float | None
    iteration: int | None
    model: int | None
    smooth: int
    margin: float = MARGIN

    @property
    def word(self) -> str:
        """`same` or `differs`."""
        return "same" if self.same else "differs"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a record."""
        return {"verdict": self.word, **asdict(self)}

    def __str__(self) -> str:
        where = "" if self.iteration is None else f"; first at iteration {self.iteration} of model {self.model}"
        held_out = (
            ""
            if self.accuracy is None
            else f", accuracies on held-out data by {self.accuracy:.2g} ({self.accuracy_control:.2g})"
        )
        return (
            f"{self.word}: smoothed losses differ by {self.loss:.2g} at most (control {self.loss_control:.2g}), "
            f"weights by {self.weights:.2g} ({self.weights_control:.2g}){held_out}{where}"
        )


@dataclass(frozen=True)
class Ways:
    """One quantity of the three trainings."""

    serial: Any
    control: Any
    hfta: Any


def judge(losses: Ways, start: Weights, weights: Ways, accuracy: Ways | None, precision: str, smooth: int) -> Verdict:
    """Judge an array of models by its models alone and their control.

    Args:
        losses: [iteration][model] of each way.
        start, weights: sketches of the models' weights, before and after.
        accuracy: accuracy of each model, or None.
        smooth: iterations that are averaged for the reported difference of losses.
    """
    floor = _ROUNDINGS * _EPSILON.get(precision, _EPSILON["fp32"])
    serial, control, hfta = (np.asarray(x, np.float64) for x in (losses.serial, losses.control, losses.hfta))
    apart, allowed = _apart(hfta, serial), _apart(control, serial)
    bound = MARGIN * _so_far(allowed.max(axis=1))[:, None] + floor
    beyond = np.argwhere(~(apart <= bound))
    scores = (
        None
        if accuracy is None
        else (_largest(accuracy.hfta, accuracy.serial), _largest(accuracy.control, accuracy.serial))
    )
    right_scores = scores is None or scores[0] <= max(_SPREAD, _SPREADS * scores[1])
    moved, moved_control = (_moved(w, weights.serial, start) for w in (weights.hfta, weights.control))
    right_weights = moved <= MARGIN * moved_control + floor
    first = None if not len(beyond) else (int(beyond[0][0]), int(beyond[0][1]))
    smooth = max(1, min(smooth, len(serial)))
    return Verdict(
        same=first is None and right_weights and right_scores, loss=float(_apart(*(smoothed(x,
        smooth) for x in (hfta, serial))).max()), loss_control=float(_apart(*(smoothed(x,
        smooth) for x in (control, serial))).max()), raw=float(apart.max()), weights=moved,
        weights_control=moved_control, accuracy=None if scores is None else scores[0],
        accuracy_control=None if scores is None else scores[1], iteration=None if first is None else first[0],
        model=None if first is None else first[1], smooth=smooth,
    )  # fmt: skip


def _so_far(drift: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest drift up to each iteration; after the first, up to `_LAG` iterations later."""
    largest = np.maximum.accumulate(drift)
    later = np.concatenate([largest[_LAG:], np.full(min(_LAG, len(largest)), largest[-1])])
    return np.concatenate([largest[:1], later[1 : len(largest)]])


def smoothed(losses: Any, width: int) -> NDArray[np.float64]:
    """Means of `width` iterations each, `[ceil(T / width), models]`."""
    values = np.asarray(losses, np.float64)
    return np.stack([values[begin : begin + width].mean(axis=0) for begin in range(0, len(values), width)])


def _apart(mine: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """Relative difference per iteration and model: 0 where both are not finite, infinite where one is."""
    both = np.isfinite(mine) & np.isfinite(other)
    usual = np.abs(np.where(np.isfinite(other), other, 0)).mean(axis=0)
    scale = np.maximum(np.abs(np.where(both, other, 1)), 1e-2 * usual + 1e-300)
    found = np.where(both, np.abs(np.where(both, mine - other, 0)) / scale, np.inf)
    return np.where(~np.isfinite(mine) & ~np.isfinite(other), 0.0, found)


def _moved(mine: Weights, other: Weights, start: Weights) -> float:
    """Largest distance of two models' weights, over how far training moved them."""
    a, b, c = (np.asarray(x, np.float64) for x in (mine, other, start))
    if not np.isfinite(b).all():  # diverged: losses have told when
        return 0.0 if (np.isfinite(a) == np.isfinite(b)).all() else float("inf")
    way = np.linalg.norm(b - c, axis=1)
    distance = np.linalg.norm(a - b, axis=1)
    return float(np.max(np.where(distance == 0, 0.0, distance / np.maximum(way, 1e-300))))


def _largest(mine: Sequence[float], other: Sequence[float]) -> float:
    return max(abs(a - b) for a, b in zip(mine, other, strict=True))


def write_outputs(
    root: Path, settings: ConvergenceSettings, read: Mapping[str, Mapping[str, Any]], verdict: Verdict
) -> list[Path]:
    """Write `convergence.csv`, `convergence.png` and `verdict.json`; returns their paths."""
    from matplotlib.figure import Figure  # without pyplot: no display is looked for, no state is kept

    from ... import plots

    files = [root / name for name in ("convergence.csv", "convergence.png", "verdict.json")]
    table = table_of(settings.lrs, read)
    results.save_csv(table, files[0], index=True)
    axes = plots.convergence(table, settings.smooth, Figure(figsize=(6.4, 4.0)).subplots())
    axes.set_title(f"{settings.job} {settings.precision}: {verdict.word}")
    plots.save(axes, files[1])
    write_json(files[2], verdict.to_dict())
    return files


def draw(request: Request) -> Drawn:
    """Draw a comparison from its `convergence.csv`.

    Raises:
        InvalidArgument: there are several directories, or one without that file.
    """
    from matplotlib.figure import Figure

    from ... import plots

    if len(request.directories) != 1 or request.metric is not None:
        raise InvalidArgument("--kind convergence draws one comparison, and has no --metric")
    (root,) = request.directories
    try:
        table = pd.read_csv(root / "convergence.csv", index_col="iteration")
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{root}: no comparison of convergence here ({reason(error)})") from error
    verdict = read_json(root / "verdict.json") if (root / "verdict.json").is_file() else {}
    axes = plots.convergence(table, int(verdict.get("smooth", 1)), Figure(figsize=(6.4, 4.0)).subplots())
    axes.set_title(str(verdict.get("verdict", "")))
    files = request.files(root / "convergence")
    results.save_csv(table, files[0], index=True)
    plots.save(axes, files[1])
    return plots.Drawn(files)


def table_of(lrs: list[float], read: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """Losses by iteration, a column `{way}:{learning rate}` each."""
    columns = {
        f"{way}:{lr:g}": [row[index] for row in read[way]["losses"]]
        for way in ("serial", "hfta", "control")
        for index, lr in enumerate(lrs)
    }
    table = pd.DataFrame(columns, dtype=float)
    table.index.name = "iteration"
    return table
