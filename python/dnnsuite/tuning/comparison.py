# SPDX-License-Identifier: MIT
"""One search in several modes: equal results, and the time that each took to them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._files import write_json, write_text
from .._runs.folder import drop_abandoned
from ..errors import InvalidArgument
from ..results.intervals import of_rates
from .result import Sweep

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_BASELINE = "serial"
_FILES = ("comparison.csv", "comparison.json", "trajectory.png")


@dataclass(eq=False)
class Comparison:
    """Sweeps of the same search by mode, one per repeat.

    A ratio of times is given from two repeats on, of searches that ran from their beginning to their end at once.

    Attributes:
        sweeps: sweeps by mode.
        unavailable: reasons by mode.
        exact: all modes compute the same bits. On a GPU they agree up to rounding, which training amplifies.
    """

    sweeps: Mapping[str, Sequence[Sweep]]
    unavailable: Mapping[str, str] = field(default_factory=dict)
    exact: bool = True

    @property
    def same(self) -> bool:
        """True if all modes found the same best configuration, with the same value, in each repeat."""
        rows = [[(json.dumps(dict(s.best_config), sort_keys=True), s.best_value) for s in sweeps]
                for sweeps in self.sweeps.values()]  # fmt: skip
        return all(row == rows[0] for row in rows)

    @property
    def failed(self) -> bool:
        """True if the modes differ though they compute the same bits."""
        return self.exact and not self.same

    @property
    def verdict(self) -> str:
        """Sentence on what the modes found; empty for a single one."""
        if len(self.sweeps) < 2:
            return ""
        if self.same:
            return "all modes found the same best configuration"
        configs = {json.dumps([dict(s.best_config) for s in sweeps], sort_keys=True) for sweeps in self.sweeps.values()}
        which = "different best configurations"
        if len(configs) == 1:
            which = "the same best configuration with different values"
        values = ", ".join(f"{mode} {sweeps[0].best_value:.6g}" for mode, sweeps in self.sweeps.items())
        why = "" if self.exact else ": on a GPU they agree up to rounding, which training amplifies"
        return f"the modes found {which} ({values}){why}"

    def rows(self) -> list[dict[str, Any]]:
        """Plain values by mode: the best, seconds to it, their sum over trials, and speedups with intervals."""
        base = self.sweeps.get(_BASELINE)
        return [self._row(mode, sweeps, base) for mode, sweeps in self.sweeps.items()]

    def _row(self, mode: str, sweeps: Sequence[Sweep], base: Sequence[Sweep] | None) -> dict[str, Any]:
        first = sweeps[0]
        found: dict[str, Any] = {
            "mode": mode, "trials": len(first.trials), "epochs": first.epochs, "metric": first.metric,
            "best": first.best_value, "best_trial": first.best_trial,
            "seconds": _mean([sweep.seconds for sweep in sweeps]),
            "resumed": any(sweep.resumed for sweep in sweeps),
            "seconds_to_best": _mean([_seconds_to_best(sweep) for sweep in sweeps]),
            "sum_of_runtimes": _mean([_runtimes(sweep) for sweep in sweeps]),
            "changed": "; ".join(
                dict.fromkeys(said for sweep in sweeps for said in sweep.changed.values())
            ),
        }  # fmt: skip
        if base is not None and len(sweeps) > 1 and not any(sweep.resumed for sweep in (*base, *sweeps)):
            pairs = list(zip(base, sweeps, strict=False))
            speed = of_rates([_seconds_to_best(a) / max(_seconds_to_best(b), 1e-9) for a, b in pairs])
            found |= {"speedup": speed.mean, "low": speed.low, "high": speed.high}
            found["speedup_of_runtimes"] = _mean([_runtimes(a) / max(_runtimes(b), 1e-9) for a, b in pairs])
        return found

    def table(self) -> pd.DataFrame:
        """Return a row per mode."""
        import pandas as pd

        return pd.DataFrame(self.rows())

    def draw(self) -> Axes:
        """Best metric over seconds, a line per mode, of the first repeat."""
        from matplotlib.figure import Figure

        axes = Figure(figsize=(6, 4)).subplots()
        for mode, sweeps in self.sweeps.items():
            path = sweeps[0].trajectory
            axes.step(path["timestamp"], path[sweeps[0].metric], where="post", label=mode)
        axes.set_xlabel("seconds")
        axes.set_ylabel(f"best {next(iter(self.sweeps.values()))[0].metric}")
        axes.grid(alpha=0.3)
        axes.legend()
        return axes

    def to_dict(self) -> dict[str, Any]:
        """Plain values: the best of the first mode in a line, rows by mode, the names of the files."""
        first = next(iter(self.sweeps.values()))[0]
        return {
            "best": first.describe(), "rows": self.rows(), "same": self.same, "verdict": self.verdict,
            "unavailable": dict(self.unavailable), "files": list(_FILES),
        }  # fmt: skip

    def save(self, out: Path) -> None:
        """Write `comparison.csv`, `comparison.json` and `trajectory.png`."""
        from .. import plots

        write_text(out / _FILES[0], self.table().to_csv(index=False))
        plots.save(self.draw(), out / _FILES[2])
        write_json(out / _FILES[1], self.to_dict())


def compare(
    run: Callable[[str, int, Path, bool], Sweep],
    modes: Sequence[str],
    repeats: int,
    out: Path,
    resume: bool,
    unavailable: Mapping[str, str],
    exact: bool = True,
) -> Comparison:
    """Run a search in each mode, interleaved, `repeats` times.

    Args:
        run: (mode, repeat, directory, whether to resume) → the sweep.
        out: each sweep is in `out/run<repeat>/<mode>`.
        exact: all modes compute the same bits here.

    Raises:
        InvalidArgument: no mode is left; the message has the reasons.
    """
    left = [mode for mode in modes if mode not in unavailable]
    if not left:
        raise InvalidArgument("; ".join(f"{mode}: {why}" for mode, why in unavailable.items()))
    sweeps: dict[str, list[Sweep]] = {mode: [] for mode in left}
    drop_abandoned(out)
    for repeat in range(repeats):
        for mode in left:
            where = out / f"run{repeat}" / mode
            sweeps[mode].append(run(mode, repeat, where, resume and (where / "sweep.json").is_file()))
    return Comparison(sweeps, dict(unavailable), exact)


def _seconds_to_best(sweep: Sweep) -> float:
    """Seconds from the beginning until the best value was known."""
    return float(sweep.points[-1][0]) if sweep.points else sweep.seconds


def _runtimes(sweep: Sweep) -> float:
    """Sum of the trials' shares of time, as HFHT compares modes."""
    return sum(trial.seconds for trial in sweep.trials)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
