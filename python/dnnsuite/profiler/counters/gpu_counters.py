# SPDX-License-Identifier: MIT
"""Counters over the steps of a training loop, or over its kernels one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..._lazy import pandas as pd
from ...errors import InvalidArgument, check_choice
from ..instrument import SessionInstrument, define
from .catalogue import CUPTI, Backend, unit_of
from .planner import CounterPlan, plan, plan_kernels
from .roles import CORES, ROLES, SAMPLED, SHARED, Selection, remarks, select

_UTILIZATION = {
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
    return define(pd.DataFrame(rows, columns=[name for name in _UTILIZATION if name != "sd"]), _UTILIZATION)


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
    return define(pd.DataFrame(found, columns=columns), _UTILIZATION)


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


MODES = ("steps", "kernels")
MOST_ITERATIONS = 10  # of kernels mode, which is 10 to 100 times slower: TBD's own bound
_RANGES = 64  # room of one segment
_RANGES_OF_A_STEP = 8  # where each step is a segment: they are kept until the window ends
_RANGES_OF_KERNELS = 2048

_DEFINITIONS = {
    "step": "step, counted from 0 over all windows",
    "mark": "part of the step, as it was marked; empty for the whole step",
    "kernel": "in kernels mode, the kernel's place in the order of launches within the step; else -1",
    "metric": "CUPTI's name of what was counted",
    "role": "what it is for, the same on every chip; empty for a metric requested by name",
    "value": "in `unit`; NaN where nothing was counted",
    "unit": "unit of the value",
    "group": "which group of metrics was counted in that step",
    "passes": "over how many consecutive steps it was counted, beginning with this one",
    "mode": "steps: kernels ran as ever; kernels: one at a time and replayed, do not compare the two",
    "device": "the GPU's number",
}


class CountersInstrument(SessionInstrument):
    """Counters of a GPU over each step, or over each kernel.

    In mode "steps" a step is never run twice: metrics that do not fit into one pass are counted in turn, one group per
    step. In mode "kernels" CUPTI runs every kernel alone, once for each pass, and saves and restores what it writes.
    That is slow, and hangs kernels that wait for one another (NCCL), so use it for 1 to 10 iterations on one GPU.

    Args:
        metrics: presets, roles and metrics; see :func:`dnnsuite.profiler.counters.select`.
        device: number of the GPU, in CUDA's order.
        mode: "steps" or "kernels".
        iterations: largest number of steps, in kernels mode.
        max_ranges: largest number of ranges (marks × steps, or kernels of a step) before they are fetched. It costs
            memory. Further ranges are dropped, which :meth:`notes` reports.

    Raises:
        InvalidArgument: the mode is unknown, `iterations` is out of range, or a preset is sampled over time.
    """

    name = "counters"

    def __init__(
        self,
        metrics: str | Sequence[str] = "cores",
        device: int = 0,
        mode: str = "steps",
        iterations: int = 1,
        max_ranges: int | None = None,
        backend: Backend = CUPTI,
    ) -> None:
        check_choice("mode", mode, MODES)
        if mode == "kernels" and not 1 <= iterations <= MOST_ITERATIONS:
            raise InvalidArgument(
                f"iterations {iterations} in kernels mode; accepted: 1 to {MOST_ITERATIONS}, for kernels are replayed"
            )
        if max_ranges is not None and max_ranges < 1:
            raise InvalidArgument(f"max_ranges {max_ranges}; accepted: 1 and more")
        asked = metrics.split(",") if isinstance(metrics, str) else metrics
        if any(word in SAMPLED for word in asked):
            raise InvalidArgument(f"{', '.join(SAMPLED)} is sampled over time: use PmSamplingInstrument")
        self._metrics, self._device, self._mode, self._iterations = metrics, device, mode, iterations
        self._max_ranges = max_ranges
        self._backend = backend
        self._running = False
        self._steps_of_window = 0
        self._rows: list[dict[str, Any]] = []
        self._dropped = self._left_out = 0
        self.selection: Selection | None = None
        self.plan: CounterPlan | None = None

    def open(self) -> None:
        """Acquire the GPU's counters.

        Raises:
            Unavailable: there is no driver, GPU, CUPTI or permission, or another profiler holds the GPU.
        """
        if self._session is not None:
            return
        device = self._backend.device(self._device)
        selection = select(self._metrics, device.chip)
        planned = self._plan(selection)
        kernels = self._mode == "kernels"
        groups = [group.metrics for group in planned.groups]
        of_steps = _RANGES if planned.steps == 1 else _RANGES_OF_A_STEP
        room = self._max_ranges or (_RANGES_OF_KERNELS if kernels else of_steps)
        self._session = self._backend.ranges(device, groups, kernels, room)
        self.selection, self.plan = selection, planned

    def _plan(self, selection: Selection) -> CounterPlan:
        if self._mode == "kernels":
            return plan_kernels(selection.metrics, selection.chip)
        shared = [metric for metric, role in selection.roles.items() if role in SHARED]
        return plan(selection.metrics, selection.chip, in_every_group=shared)

    def start(self) -> None:
        """Open a window and begin its first step."""
        self._opened().start()
        self._running, self._steps_of_window = True, 0

    def mark(self, name: str) -> None:
        """Count the rest of the step separately, under this name."""
        if self._running:
            self._opened().mark(name)

    def step(self, index: int) -> None:
        """End a step. In kernels mode, steps beyond `iterations` are not counted."""
        if not self._running:
            return
        self._steps_of_window += 1
        try:
            if self._mode == "kernels" and self._steps_of_window >= self._iterations:
                self._finish()
            else:
                self._session.step()
        except BaseException:
            self._running = False  # the session has given the window up
            raise

    def stop(self) -> None:
        """Close the window and evaluate the counts."""
        self._opened()
        if self._running:
            self._finish()
        self._collect()

    def _finish(self) -> None:
        self._running = False
        if self._mode == "kernels" and self._steps_of_window:
            self._session.step()  # closes the last one: what follows until stop is left out
        self._session.stop()

    def _collect(self) -> None:
        assert self.plan is not None
        self._left_out = self._session.steps_left_out
        for segment in self._session.take():
            self._dropped += segment["dropped"]
            group = self.plan.groups[segment["group"]]
            found = self._backend.evaluate(self.plan.chip, segment["image"], group.metrics)
            for order, (name, values) in enumerate(zip(found["names"], found["values"], strict=True)):
                place = self._place(segment, name, order)
                if place is not None:
                    self._rows += [
                        place | self._value(segment["group"], metric, value)
                        for metric, value in zip(group.metrics, values, strict=True)
                    ]

    def _place(self, segment: dict[str, Any], name: str, order: int) -> dict[str, Any] | None:
        """Return the step, mark and kernel of a range; None if its step had not ended."""
        if self._mode == "kernels":
            return {"step": segment["first_step"], "mark": "", "kernel": order}
        step, _, mark = name.partition("/")
        if int(step) >= segment["first_step"] + segment["steps"]:
            return None
        return {"step": int(step), "mark": mark, "kernel": -1}

    def _value(self, group: int, metric: str, value: float) -> dict[str, Any]:
        assert self.plan is not None
        assert self.selection is not None
        role = self.selection.roles.get(metric, "")
        return {
            "metric": metric,
            "role": role,
            "value": value,
            "unit": ROLES[role].unit if role else unit_of(metric, self.plan.chip),
            "group": group,
            "passes": self.plan.groups[group].passes,
            "mode": self._mode,
            "device": self._device,
        }

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return `counters`, a row per step (or kernel), mark and metric, and `utilization`, a row per role.

        Utilisation is a percentage of the step and of busy time.
        """
        counters = define(pd.DataFrame(self._rows, columns=list(_DEFINITIONS)), _DEFINITIONS)
        return {"counters": counters, "utilization": self._utilization(counters)}

    def _utilization(self, counters: pd.DataFrame) -> pd.DataFrame:
        if self._mode == "steps":
            return step_utilization(counters)
        wide = counters.pivot_table(index=["step", "kernel"], columns="role", values="value", dropna=False)
        percent = counters[(counters["unit"] == "%") & (counters["role"] != "")]["role"].unique()
        if "cycles" not in wide:
            return core_utilization(pd.DataFrame(columns=["cycles"]), cores=())
        return core_utilization(wide, cores=[role for role in percent if role in wide])

    def notes(self) -> list[str]:
        """Return remarks on dropped ranges, omitted steps, metrics taking turns, and values that must not be added."""
        lines = []
        if self._dropped:
            lines.append(f"counters: {self._dropped} ranges found no room and were dropped; raise max_ranges")
        if self._left_out:
            lines.append(f"counters: {self._left_out} steps were not counted in all passes of their group")
        if self.plan and self.selection:
            if len(self.plan.groups) > 1 or self.plan.steps > 1:
                groups = len(self.plan.groups)
                lines.append(
                    f"counters: {groups} groups of metrics took turns, each had one of {self.plan.steps} steps"
                )
            lines += [f"counters: {line}" for line in remarks(self.selection)]
        if self._mode == "kernels":
            lines.append("counters: kernels ran one at a time and were replayed: no time of this run is a step's time")
        return lines

    def close(self) -> None:
        """Release the GPU's counters. It may be called more than once."""
        self._running = False
        super().close()
