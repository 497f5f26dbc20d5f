# SPDX-License-Identifier: MIT
"""Partly fused arrays: the sweep whose axis is how many of a model's units are left unfused.

`JOB_partially_fused` is the workflow of JOB with one number of models and a mode for each number of units:
`hfta-0` is the whole array, in `hfta-3` the first three units run model by model.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._lazy import pandas as pd
from .._runs.spec import import_plugins
from ..errors import InvalidArgument

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


def table_of(summary: pd.DataFrame) -> pd.DataFrame | None:
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


def write(table: pd.DataFrame, files: list[Path]) -> list[Path]:
    """Write the table and its figure to two files; returns their paths."""
    from matplotlib.figure import Figure

    from .. import plots, results

    results.save_csv(table, files[0], index=True)
    plots.save(plots.partially_fused(table, Figure(figsize=(6.4, 4.0)).subplots()), files[1])
    return files


def draw(request: Request) -> Drawn:
    """Draw partly fused sweeps from their runs; repeats of several are pooled.

    Raises:
        InvalidArgument: no partly fused array was measured.
    """
    from .. import plots, results

    loaded = results.load(*request.directories)
    summary = results.summarize(loaded, request.allow_unlike)
    table = table_of(summary)
    if table is None or request.metric is not None:
        raise InvalidArgument("--kind partially_fused draws runs of hfta-0, hfta-1, …, and has no --metric")
    files = write(table, request.files(request.directories[0] / "throughputs"))
    return plots.Drawn(files, (*loaded.attrs["problems"], *summary.attrs["notes"]))
