# SPDX-License-Identifier: MIT
"""Modes, the ways in which B models share a device: a table. Sweep, planner and plots are written once over it.

Partly fused arrays are a sweep whose axis is how many of a model's units are left unfused. `JOB_partially_fused` is the
workflow of JOB with one number of models and a mode for each number of units: `hfta-0` is the whole array, in `hfta-3`
the first three units run model by model.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._lazy import pandas as pd
from .._runs.record_parts import MODES as NAMES
from .._runs.spec import import_plugins
from ..errors import InvalidArgument, Unavailable, did_you_mean
from .devices import MIG_LIMIT, Environment, mig_instances, mig_unavailable, mps_daemon, mps_unavailable, whole_gpu

if TYPE_CHECKING:
    from ..plots import Drawn, Request

SUFFIX = "_partially_fused"
_PREFIX = "hfta-"
_MODELS = {"quick": 4, "default": 4, "paper": 30}  # 30 is HFTA's, for 16 GB


def is_partial(mode: str) -> bool:
    """True for the name of a mode with some number of units unfused, as `hfta-3`."""
    return mode.startswith(_PREFIX) and mode.removeprefix(_PREFIX).isdecimal()


def number_of(mode: str) -> int | None:
    """Return the number of units that the mode leaves unfused; None for another mode."""
    return int(mode.removeprefix(_PREFIX)) if is_partial(mode) else None


def units_of(job: str, own: Sequence[Sequence[str]] = ()) -> tuple[tuple[str, ...], ...]:
    """Names of modules in each unit, in the order in which units are left unfused: `own`, else those of the job.

    Raises:
        InvalidArgument: the job declares none.
    """
    from .. import jobs

    if own:
        return tuple(tuple(unit) for unit in own)
    declared = getattr(getattr(jobs.get(job, swept=True), "workload", None), "units", ())
    if not declared:
        raise InvalidArgument(
            f"job {job} declares no units (Workload.units), which a partly fused array leaves unfused in turn; "
            "name some: --unfused MODULE, once for each"
        )
    return tuple(tuple(unit) for unit in declared)


def unfused_names(job: str, mode: str, own: Sequence[Sequence[str]] = ()) -> list[str]:
    """Modules of the job's model that run model by model in `mode`; `own` are units instead of the job's.

    Raises:
        InvalidArgument: the model has fewer units than the mode leaves unfused.
    """
    number = number_of(mode)
    if number is None:
        return []
    units = units_of(job, own)
    if number > len(units):
        raise InvalidArgument(f"mode {mode}: the model of {job} has {len(units)} units")
    return [name for unit in units[:number] for name in unit]


def options_of(name: str, asked: Mapping[str, Any], defaults: bool = True) -> tuple[str, dict[str, Any]]:
    """Return (job, options) of the workflow `name`: those asked for, and for a partly fused one its modes and its B.

    Args:
        defaults: fill in what was not asked for; not where a directory is continued that has its own.

    Raises:
        InvalidArgument: an option has no meaning there.
    """
    if not name.endswith(SUFFIX):
        return name, dict(asked)
    job, options = name.removesuffix(SUFFIX), {key: v for key, v in asked.items() if v is not None}
    for key in ("max_B", "max_num_Bs", "lambd"):
        if key in options:
            raise InvalidArgument(f"--{key.replace('_', '-')} has no meaning for {name}; --plan names its one B")
    preset = options.get("preset", "default")
    plan = options.get("plan") or ([str(_MODELS.get(preset, 4))] if defaults else ["1"])
    if len(plan) != 1 or "," in str(plan[0]):
        raise InvalidArgument(f"--plan {','.join(map(str, plan))}: {name} has one number of models")
    if not defaults:
        return job, options
    import_plugins(list(options.get("plugins", [])), [os.getcwd()])
    modes = options.get("modes") or ["serial", *(f"{_PREFIX}{n}" for n in range(_count(job, options) + 1))]
    return job, {**options, "plan": plan, "modes": modes}


def _count(job: str, options: Mapping[str, Any]) -> int:
    return len(options["units"]) if options.get("units") else len(units_of(job))


def unfused_table(summary: pd.DataFrame) -> pd.DataFrame | None:
    """Throughput over the number of units unfused, normalised by serial fp32; None where no such mode was measured.

    Index `serial num` and columns `serial:<precision>`, `hfta:<precision>` are HFTA's; `:low` and `:high` bound the
    95 % interval over the repeats.
    """
    numbers = summary["mode"].map(number_of)
    if not numbers.notna().any():
        return None
    index = pd.Index(sorted(int(n) for n in numbers.dropna().unique()), name="serial num")
    columns: dict[str, Any] = {}
    for precision in dict.fromkeys(summary["precision"]):
        of_precision = summary[summary["precision"] == precision]
        serial = of_precision[of_precision["mode"] == "serial"]
        partial = of_precision[numbers[of_precision.index].notna()]
        by_number = partial.set_index(partial["mode"].map(number_of).astype(int))
        for end, name in (("", "normalized"), (":low", "low"), (":high", "high")):
            if len(serial):
                columns[f"serial:{precision}{end}"] = pd.Series(float(serial[name].iloc[0]), index)
            columns[f"hfta:{precision}{end}"] = by_number[name].reindex(index)
    return pd.DataFrame(columns, index=index)


def write_unfused(table: pd.DataFrame, files: list[Path]) -> list[Path]:
    """Write the table and its figure to two files; returns their paths."""
    from matplotlib.figure import Figure

    from .. import plots, results

    results.save_csv(table, files[0], index=True)
    plots.save(plots.partially_fused(table, Figure(figsize=(6.4, 4.0)).subplots()), files[1])
    return files


def draw_unfused(request: Request) -> Drawn:
    """Draw partly fused sweeps from their runs; repeats of several are pooled.

    Raises:
        InvalidArgument: no partly fused array was measured.
    """
    from .. import plots, results

    loaded = results.load(*request.directories)
    summary = results.summarize(loaded, request.allow_unlike)
    table = unfused_table(summary)
    if table is None or request.metric is not None:
        raise InvalidArgument("--kind partially_fused draws runs of hfta-0, hfta-1, …, and has no --metric")
    files = write_unfused(table, request.files(request.directories[0] / "throughputs"))
    return plots.Drawn(files, (*loaded.attrs["problems"], *summary.attrs["notes"]))


Placement = Callable[[int], AbstractContextManager[list[Environment]]]


@dataclass(frozen=True)
class Mode:
    """A way to distribute B models over processes.

    Attributes:
        name: name in commands and tables.
        description: one line about the mode.
        separate: True for a worker process for each model, False for one of all.
        fused: True for a fused array of the models of each process, False for plain torch.
        place: functions by device, each from the number of processes to a context manager that yields the environment
            of each process and restores the device.
        unavailable: function from a device to the reason why the mode cannot be used there, or None.
        limit_B: largest number of models, whatever the memory, or None.
        changes_machine: True if it changes the GPU for all its users; it must then be requested by name.
    """

    name: str
    description: str
    separate: bool
    fused: bool
    place: dict[str, Placement]
    unavailable: Callable[[str], str | None]
    limit_B: int | None = None
    changes_machine: bool = False

    def processes(self, B: int) -> int:
        """Return the number of worker processes for B models."""
        return B if self.separate else 1

    def width(self, B: int) -> int:
        """Return the number of models in the fused array of each process; 0 means plain torch."""
        return B if self.fused else 0


@contextmanager
def _nothing(n: int) -> Iterator[list[Environment]]:
    """Context manager for a device that needs no preparation."""
    yield [{} for _ in range(n)]


def _anywhere(device: str) -> str | None:
    return None


_SHARED: dict[str, Placement] = {"cpu": _nothing, "cuda": whole_gpu}

_KNOWN = {
    mode.name: mode
    for mode in (
        Mode("serial", "one plain model, one process", False, False, _SHARED, _anywhere, limit_B=1),
        Mode("concurrent", "B plain models, a process each", True, False, _SHARED, _anywhere),
        Mode("mps", "concurrent, through NVIDIA's MPS daemon", True, False, {"cuda": mps_daemon},
             mps_unavailable, changes_machine=True),
        Mode("mig", "concurrent, each on a MIG instance of its own", True, False, {"cuda": mig_instances},
             mig_unavailable, limit_B=MIG_LIMIT, changes_machine=True),
        Mode("hfta", "one array of B models, one process", False, True, _SHARED, _anywhere),
    )
}  # fmt: skip
MODES: dict[str, Mode] = {name: _KNOWN[name] for name in NAMES}
DEFAULT = [name for name, mode in MODES.items() if not mode.changes_machine]  # where no modes are named


def get(name: str) -> Mode:
    """Find a mode by its name.

    Raises:
        InvalidArgument: there is none; the message lists them.
    """
    if (unfused := number_of(name)) is not None:
        description = f"one array of B models with {unfused} of their units unfused, one process"
        return replace(MODES["hfta"], name=name, description=description)
    if name not in MODES:
        raise InvalidArgument(f"unknown mode {name!r}; modes are {', '.join(MODES)}{did_you_mean(name, MODES)}")
    return MODES[name]


def unavailable(names: Sequence[str], device: str) -> dict[str, str]:
    """Reasons by mode of those that cannot be used on `device`.

    Raises:
        Unavailable: none of them can; the message has the reasons.
    """
    reasons = {name: reason for name in names if (reason := get(name).unavailable(device))}
    if len(reasons) == len(names):
        raise Unavailable("; ".join(f"{name}: {reason}" for name, reason in reasons.items()))
    return reasons
