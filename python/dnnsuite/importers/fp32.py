# SPDX-License-Identifier: MIT
"""FP32 utilisation as TBD reported it: how busy the single-precision units were, on nvprof's scale from 0 to 10.

`Σ_k d_k · L_k / Σ_k d_k` over launches of duration d and level L. On GPUs that nvprof does not know the level is a
tenth of ncu's `smsp__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active`, rounded. Rows that were not measured
(copies, an empty cell) are left out with a note; they do not count as 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._lazy import pandas as pd
from ..errors import InvalidArgument
from ..profiler.counters.roles import names
from ..profiler.instrument import define
from . import ncu, nvprof
from ._loading import sniff

_METRIC = "single_precision_fu_utilization"
_PIPE = names("fma_active")[0]
_TIME = names("time")[0]
_TOP = 5
_MEANINGS = {
    "name": "the kernel",
    "level": "its mean level, 0 to 10, weighted by duration",
    "time_pct": "its share of the time of all kernels that were measured, %",
    "duration_ns": "its time, all launches together",
}


@dataclass(frozen=True)
class Fp32Report:
    """The figures that TBD's analysis prints.

    `level` is the mean over time on the scale of 0 to 10. `high` and `low` are the longest kernels whose own mean is
    above it, and those where it is not. `left_out` counts launches without a level, `left_out_ns` their time.
    """

    total_ns: float
    level: float
    high: pd.DataFrame
    low: pd.DataFrame
    left_out: int
    left_out_ns: float

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return {**vars(self), "high": self.high.to_dict("records"), "low": self.low.to_dict("records")}


def of_nvprof(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Return levels `[N]` of a result of :func:`nvprof.read`: name, duration_ns (of all calls), level, calls.

    Raises:
        InvalidArgument: the metric or the durations are not in the file.
    """
    metrics, launches = tables["metrics"], tables["launches"]
    plain = metrics["metric"].astype(str).str.lower().str.replace(r"[ -]", "_", regex=True)
    mine = metrics[plain.isin([_METRIC, "single_precision_function_unit_utilization"])]
    if not len(mine):
        raise InvalidArgument(f"the file lacks {_METRIC}: `nvprof --metrics {_METRIC}` measures it")
    if launches["duration_ns"].isna().all():
        raise InvalidArgument(
            "the file has levels and no durations, so that they cannot be weighted; export GPU Details from nvvp"
        )
    level = mine.drop_duplicates("kernel_id").set_index("kernel_id")["value"].reindex(launches["kernel_id"])
    found = launches[["name", "calls"]].assign(
        name=nvprof.without_launch(launches["name"]),
        duration_ns=launches["duration_ns"] * launches["calls"],
        level=level.to_numpy(),
    )
    return found[found["duration_ns"].notna()]


def of_ncu(table: pd.DataFrame) -> pd.DataFrame:
    """Return levels `[N]` of a result of :func:`ncu.read`, as :func:`of_nvprof` does.

    Raises:
        InvalidArgument: the metric or the durations are not in the file.
    """
    there = {*table["metric"].unique()}
    time = _TIME if _TIME in there else "Duration"
    if not {_PIPE, time} <= there:
        raise InvalidArgument(f"the file lacks {_PIPE}: `ncu --csv --metrics {_TIME},{_PIPE}` measures it")
    wide = ncu.launches(table, [time, _PIPE])
    found = wide[["name"]].assign(calls=1.0, duration_ns=wide[time], level=(wide[_PIPE] / 10).round().clip(0, 10))
    return found[found["duration_ns"].notna()]


def read_levels(path: str | Path) -> pd.DataFrame:
    """Levels of a file, ncu's or nvprof's. Raises what :func:`of_ncu`, :func:`of_nvprof` and their readers raise."""
    if sniff(path) == "ncu":
        return of_ncu(ncu.read(path))
    return of_nvprof(nvprof.read(path))


def fp32_report(levels: pd.DataFrame) -> Fp32Report:
    """Compute TBD's report from levels.

    Args:
        levels: one row per launch, or per kernel of a summary: name, duration_ns, level (0 to 10, NaN where it was not
            measured), calls.

    Raises:
        InvalidArgument: no launch has both a duration and a level, or a duration is negative or a level not in 0 to 10.
    """
    counted = levels[levels["level"].notna()]
    total_ns = float(counted["duration_ns"].sum())
    if not total_ns > 0:
        raise InvalidArgument("no launch has a duration and a level")
    if (counted["duration_ns"] < 0).any() or not counted["level"].between(0, 10).all():
        raise InvalidArgument("a duration is negative or a level not in 0 to 10: the file is damaged")
    mean = float((counted["duration_ns"] * counted["level"]).sum()) / total_ns
    used = counted.assign(used=counted["duration_ns"] * counted["level"])
    kernels = used.groupby("name", observed=True, sort=False)[["duration_ns", "used"]].sum().reset_index()
    kernels["level"] = (kernels["used"] / kernels["duration_ns"]).fillna(0.0)  # kernels of no length weigh nothing
    kernels["time_pct"] = 100 * kernels["duration_ns"] / total_ns
    kernels = kernels.sort_values("duration_ns", ascending=False, kind="stable")[list(_MEANINGS)]
    above = kernels["level"] > mean
    high, low = (kernels[mask].head(_TOP).reset_index(drop=True) for mask in (above, ~above))
    missing = levels[levels["level"].isna()]
    return Fp32Report(
        total_ns,
        mean,
        define(high, _MEANINGS),
        define(low, _MEANINGS),
        int(missing["calls"].sum()),
        float(missing["duration_ns"].sum()),
    )


def render(report: Fp32Report) -> str:
    """Return the report as TBD's script printed it."""
    lines = [f"total duration (ns): {report.total_ns:.0f}", f"average util scale: {report.level:.5f}"]
    for title, kernels in (("high", report.high), ("low", report.low)):
        lines += ["", f"top {_TOP} kernels with {title} utilization", "util\t%time\tname"]
        lines += [f"{row.level:.2f}\t{row.time_pct:.2f}\t{row.name}" for row in kernels.itertuples(index=False)]
    return "\n".join(lines)
