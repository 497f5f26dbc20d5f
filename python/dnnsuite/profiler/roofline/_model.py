# SPDX-License-Identifier: MIT
"""Operators under the roofline: their rate, the peak that bounds each, and their figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..._lazy import pandas as pd
from ...errors import InvalidArgument
from .peaks import Peaks

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_SHORT_NS = 10_000  # calls of this length are mostly their own dispatch
_FAR_PCT = 30.0
_MINOR = 0.05  # a thread with less than this share of the busiest one's time is no lane
_PRECISION = {"c10::BFloat16": "bf16"}

COLUMNS = {
    "name": "operator",
    "class": "kind of work, by name",
    "phase": "where it was called from",
    "dtype": "of its first tensor",
    "calls": "how often in the window",
    "time_s": "time in it, summed over calls and threads",
    "share_pct": "of the time in all operators that are counted",
    "flops": "analytic, all calls",
    "bytes": "inputs and outputs, each once, all calls",
    "intensity": "flops / bytes",
    "flops_per_s": "flops / time_s",
    "bytes_per_s": "bytes / time_s",
    "level": "the smallest level of memory that holds the bytes of one call: where its operands are at best",
    "attainable_pct": "time that the roofs allow / time it took; more than 100: its operands were in a nearer cache",
    "bound": "what holds it down",
}


def attainable_flops_per_s(intensity: float, peak_flops_per_s: float, peak_bytes_per_s: float) -> float:
    """Compute the roofline: min(peak, intensity x bandwidth)."""
    return min(peak_flops_per_s, intensity * peak_bytes_per_s)


def bound_s(flops: float, bytes_: float, peak_flops_per_s: float, peak_bytes_per_s: float) -> float:
    """Return the shortest possible time for the work, s: the longer of arithmetic and traffic, which can overlap.

    Args:
        flops: floating-point operations.
        bytes_: bytes read and written.
        peak_flops_per_s, peak_bytes_per_s: peaks of the machine.

    >>> bound_s(flops=2e9, bytes_=1e9, peak_flops_per_s=1e9, peak_bytes_per_s=1e9)
    2.0
    """
    return max(flops / peak_flops_per_s, bytes_ / peak_bytes_per_s)


@dataclass(frozen=True)
class RooflineSummary:
    """Summary of all steps. `pct_of_peak` is relative to wall time, `pct_of_peak_cpu` to CPU time."""

    steps: int
    step_s: float
    cpu_s: float
    flops_per_step: float
    flops_per_s: float
    pct_of_peak: float
    pct_of_peak_cpu: float
    attainable_pct: float


class Roofline:
    """The operators of a window under the peaks of the machine.

    If several threads run operators at the same time, as in a StepRunner, each has a fraction of the peaks (`lanes`).
    `table` has a row for each operator, phase and type, the longest first; see `attrs["definitions"]`.

    Args:
        peaks: the roofs.
        ops: table `ops` of `OpsInstrument`.
        steps: table `steps_cpu` of `CpuInstrument` over the same window.

    Raises:
        InvalidArgument: no operator was recorded within a step.
    """

    def __init__(self, peaks: Peaks, ops: pd.DataFrame, steps: pd.DataFrame) -> None:
        counted = ops[ops["counted"] & (ops["step"] >= 0)]
        if counted.empty or steps.empty:
            raise InvalidArgument("no operator was recorded within a step: there is nothing to draw")
        self.peaks = peaks
        busy = (counted["t1_ns"] - counted["t0_ns"]).groupby(counted["thread"]).sum()
        self.lanes = int((busy >= _MINOR * busy.max()).sum())  # threads that run operators at the same time
        self.table = self._table(counted)
        self.summary = self._summary(counted, ops, steps)

    def _table(self, counted: pd.DataFrame) -> pd.DataFrame:
        calls = counted.assign(ns=counted["t1_ns"] - counted["t0_ns"])
        rows = []
        for (name, kind, phase, dtype), group in calls.groupby(["name", "class", "phase", "dtype"], observed=True):
            rows.append(self._row((name, kind, phase, dtype), group))
        table = pd.DataFrame(rows, columns=list(COLUMNS)).sort_values("time_s", ascending=False, ignore_index=True)
        table["share_pct"] = 100 * table["time_s"] / table["time_s"].sum()
        table.attrs["definitions"] = dict(COLUMNS)
        return table

    def _row(self, names: tuple[Any, ...], calls: pd.DataFrame) -> tuple[Any, ...]:
        dtype = names[3]
        time_s, flops, moved = (calls["ns"].sum() / 1e9, float(calls["flops"].sum()), float(calls["bytes"].sum()))
        level = self.peaks.level_of(self.lanes * moved / len(calls))
        peak, bandwidth = self._roofs(dtype, level)
        least_s = bound_s(flops, moved, peak, bandwidth)
        attained = 100 * least_s / max(time_s, 1e-9)
        mean_ns = calls["ns"].sum() / len(calls)
        by_compute = flops / peak >= moved / bandwidth
        return (
            *names, len(calls), time_s, 0.0, flops, moved, flops / max(moved, 1.0), flops / max(time_s, 1e-9),
            moved / max(time_s, 1e-9), level, attained, _bound(attained, mean_ns, by_compute, level),
        )  # fmt: skip

    def _roofs(self, dtype: str, level: str) -> tuple[float, float]:
        """Return the peaks (FLOP/s, bytes/s) of one lane."""
        precision = _PRECISION.get(dtype, "fp32")
        return self.peaks.flops_per_s[precision] / self.lanes, self.peaks.bytes_per_s[level] / self.lanes

    def _summary(self, counted: pd.DataFrame, ops: pd.DataFrame, steps: pd.DataFrame) -> RooflineSummary:
        wall_s, cpu_s = steps["wall_ns"].sum() / 1e9, steps["cpu_ns"].sum() / 1e9
        flops, number = float(counted["flops"].sum()), len(steps)
        heavy = counted.groupby("dtype", observed=True)["flops"].sum()
        precision = _PRECISION.get(str(heavy.idxmax()), "fp32") if flops else "fp32"
        peak = self.peaks.flops_per_s[precision]
        least_s = float((self.table["attainable_pct"] / 100 * self.table["time_s"]).sum())
        outermost = ops[ops["depth"] == 0]
        inside_s = (outermost["t1_ns"] - outermost["t0_ns"]).sum() / 1e9
        return RooflineSummary(
            number,
            wall_s / number,
            cpu_s / number,
            flops / number,
            flops / wall_s,
            100 * flops / wall_s / peak,
            100 * flops / max(cpu_s, 1e-9) / (peak / self.peaks.threads),
            100 * least_s / max(inside_s, 1e-9),
        )


def _bound(attained_pct: float, mean_ns: float, by_compute: bool, level: str) -> str:
    if attained_pct < _FAR_PCT and mean_ns < _SHORT_NS:
        return "calls too short: dispatch"
    roof = "arithmetic" if by_compute else f"bandwidth of {level}"
    return roof if attained_pct >= _FAR_PCT else f"far below its roof ({roof})"


_LOOKS = {
    "gemm": ("#0072B2", "o"),
    "conv": ("#E69F00", "s"),
    "attention": ("#009E73", "^"),
    "recurrence": ("#D55E00", "D"),
}
_NAMED = 6  # operators that are named in the figure
_APART = 1.5


def draw(peaks: Peaks, table: pd.DataFrame | None = None, ax: Axes | None = None, lanes: int = 1) -> Axes:
    """Draw FLOP/s over arithmetic intensity: the peaks, and the operators of `table` (`Roofline.table`) that have
    FLOPs.

    The area of a point is the time in the operator. With several `lanes`, points are those of all lanes together.
    """
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(6.4, 4.0))[1]
    top, memory = max(peaks.flops_per_s.values()), peaks.bytes_per_s["memory"]
    low, high = 1 / 16, 16 * top / memory
    points = table[table["flops"] > 0] if table is not None else None
    if points is not None and not points.empty:
        low, high = min(low, points["intensity"].min() / 2), max(high, 2 * points["intensity"].max())
    _roofs(ax, peaks, low, high)
    if points is not None and not points.empty:
        _points(ax, points, lanes)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xlim(low, high)
    ax.set_xlabel("Arithmetic intensity (FLOP/byte of inputs and outputs)")
    ax.set_ylabel("FLOP/s")
    ax.grid(alpha=0.3, which="both")
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize="small")
    return ax


def _roofs(ax: Axes, peaks: Peaks, low: float, high: float) -> None:
    best = max(peaks.flops_per_s.values())
    for (precision, peak), style in zip(peaks.flops_per_s.items(), ("-", "--"), strict=False):
        ax.axhline(peak, color="black", linestyle=style, label=f"{precision} {peak / 1e9:.0f} GFLOP/s")
    for i, (level, bandwidth) in enumerate(peaks.bytes_per_s.items()):
        xs = [low, min(best / bandwidth, high)]
        ys = [attainable_flops_per_s(x, best, bandwidth) for x in xs]
        grey = str(0.7 - 0.6 * i / max(1, len(peaks.bytes_per_s) - 1))
        ax.plot(xs, ys, color=grey, label=f"{level} {bandwidth / 1e9:.0f} GB/s")


def _points(ax: Axes, points: pd.DataFrame, lanes: int) -> None:
    largest = float(points["time_s"].max())
    for kind, group in points.groupby("class", observed=True):
        sizes = [20 + 180 * seconds / largest for seconds in group["time_s"].tolist()]
        colour, marker = _LOOKS.get(str(kind), ("tab:gray", "v"))
        rates = (lanes * group["flops_per_s"]).tolist()
        at = group["intensity"].tolist()
        ax.scatter(at, rates, s=sizes, alpha=0.7, color=colour, marker=marker, label=str(kind))
    named: list[tuple[float, float]] = []
    rows: list[dict[str, Any]] = points.head(_NAMED).to_dict("records")  # type: ignore[assignment]
    for row in rows:
        x, y = row["intensity"], lanes * row["flops_per_s"]
        if any(max(x / a, a / x) < _APART and max(y / b, b / y) < _APART for a, b in named):
            continue  # its name would lie over another
        named.append((x, y))
        text = f"{row['name'].partition('::')[2]} ({row['phase']})"
        ax.annotate(text, (x, y), fontsize="x-small", xytext=(4, 4), textcoords="offset points")
