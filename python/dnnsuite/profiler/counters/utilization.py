# SPDX-License-Identifier: MIT
"""Core utilisation by kind of core: of the busy time, as TBD defined it, and of the whole step.

    of busy:  Σ_k cycles_k · pct_k / Σ_k cycles_k   over the kernels k, weighted by `gpc__cycles_elapsed.max`
    of step:  Σ_k cycles_k · pct_k / cycles of the step, idle ones included

(TBD, github.com/tbd-ai/tbd-suite, Core-Utilization-Analyzer; every kernel counts, the last one too.) All functions
are pure: tables in, tables out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..._lazy import pandas as pd
from ...errors import InvalidArgument
from ..instrument import define
from .roles import CORES

_DEFINITIONS = {
    "core": "kind of core; what shares hardware must not be added",
    "pct_of_busy": "its use while kernels ran: mean of the kernels' % of peak, weighted by their cycles; in %",
    "pct_of_step": "its use in the whole step, idle time included; in %",
    "counted": "kernels, or steps, whose cycles and percentage were counted",
    "left_out": "kernels, or steps, in which one of the two was not counted (NaN)",
    "sd": "standard deviation of pct_of_step over steps; in %",
}


def core_utilization(
    kernels: pd.DataFrame, cores: Sequence[str] = CORES, step_cycles: float | None = None
) -> pd.DataFrame:
    """Compute the utilisation of each kind of core over kernels.

    Args:
        kernels: one row per kernel, with a column `cycles` and a column per core in % of peak. NaN means "not counted";
            such a kernel is left out of the core's mean and counted in `left_out`.
        cores: names of the columns of cores.
        step_cycles: elapsed cycles of the whole step, including idle ones, for `pct_of_step`.

    Raises:
        InvalidArgument: a column is missing, a weight is negative, or the step is shorter than its kernels: several of
            them ran at the same time, and their cycles cannot be added.
    """
    missing = [column for column in ("cycles", *cores) if column not in kernels]
    if missing:
        raise InvalidArgument(f"no column {', '.join(missing)}; the table has {', '.join(map(str, kernels.columns))}")
    if (kernels["cycles"] < 0).any():
        raise InvalidArgument("negative cycles: cycles cannot be")
    rows = [_of_core(kernels, core, step_cycles) for core in cores]
    return define(pd.DataFrame(rows, columns=[name for name in _DEFINITIONS if name != "sd"]), _DEFINITIONS)


def _of_core(part: pd.DataFrame, core: str, step_cycles: float | None) -> dict[str, object]:
    counted = part[["cycles", core]].dropna()
    busy_cycles = float(counted["cycles"].sum())
    used = float((counted["cycles"] * counted[core]).sum())
    if step_cycles is not None and busy_cycles > step_cycles:
        raise InvalidArgument(
            f"the kernels' {busy_cycles:.0f} cycles do not fit into the step's {step_cycles:.0f}: they overlap in time"
        )
    return {
        "core": core,
        "pct_of_busy": used / busy_cycles if busy_cycles else float("nan"),
        "pct_of_step": used / step_cycles if step_cycles else float("nan"),
        "counted": len(counted),
        "left_out": len(part) - len(counted),
    }


def format_core_utilization(table: pd.DataFrame, column: str = "pct_of_busy") -> str:
    """Format the lines of TBD's script, `fma\\t17.50765 %`."""
    return "\n".join(f"{core}\t{value:.5f} %" for core, value in zip(table["core"], table[column], strict=True))


def step_utilization(counters: pd.DataFrame) -> pd.DataFrame:
    """Compute utilisation from the instrument's table `counters`: the mean over steps of each role, in percent.

    A range includes its idle time, so a count is relative to the step. Relative to busy time it is divided by the role
    `gpu_active` of the same step, or by the mean of that role if the step counted another group of metrics.
    """
    rows = counters[(counters["unit"] == "%") & (counters["mark"] == "") & (counters["role"] != "")]
    active = rows[rows["role"] == "gpu_active"].set_index("step")["value"] / 100
    found = []
    for role, part in rows.groupby("role", sort=False):
        values = part.set_index("step")["value"].astype(float)
        share = active.reindex(values.index).fillna(active.mean()) if len(active) else None
        busy = values / share.where(share > 0) if share is not None else None
        found.append(
            {
                "core": role,
                "pct_of_busy": float(busy.mean()) if busy is not None else float("nan"),
                "pct_of_step": float(values.mean()),
                "sd": float(values.std(ddof=1)) if len(values) > 1 else float("nan"),
                "counted": int(values.notna().sum()),
                "left_out": int(values.isna().sum()),
            }
        )
    columns = ["core", "pct_of_busy", "pct_of_step", "sd", "counted", "left_out"]
    return define(pd.DataFrame(found, columns=columns), _DEFINITIONS)


def utilization_lines(table: pd.DataFrame | None) -> Iterator[str]:
    """Format the table as lines of text; none if nothing was counted."""
    if table is None or table.empty:
        return
    yield ""
    yield "use of the GPU's units, % of each peak (units that share hardware overlap)"
    yield f"  {'unit':<12}{'of the step':>12}{'of busy time':>14}{'counted':>9}"
    for row in table.to_dict("records"):
        yield f"  {row['core']:<12}{row['pct_of_step']:>12.2f}{row['pct_of_busy']:>14.2f}{row['counted']:>9}"


def utilization_record(table: pd.DataFrame | None) -> list[dict[str, Any]]:
    """Convert the table for JSON."""
    return (
        [] if table is None else [dict(zip(table.columns, row, strict=True)) for row in table.itertuples(index=False)]
    )
