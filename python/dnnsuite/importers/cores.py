# SPDX-License-Identifier: MIT
"""Core utilisation from ncu's file, by the formula of TBD's `coreutil.py`.

`Σ_k cycles_k · pct_k / Σ_k cycles_k` over the kernels, for fma, fp16, tensor and sfu; every kernel counts, the last one
too (:func:`dnnsuite.profiler.counters.core_utilization` is the formula, for counters and for files).
"""

from __future__ import annotations

from .._lazy import pandas as pd
from ..errors import InvalidArgument
from ..profiler.counters.gpu_counters import core_utilization
from ..profiler.counters.roles import CORES, OF_PEAK, names
from . import ncu

CYCLES = names("cycles")[0]
# TBD's own metric. Where a file has the role's, that one: on Hopper an instruction keeps the pipe busy for many cycles.
_ALSO = {"tensor": ("sm__inst_executed_pipe_tensor" + OF_PEAK,)}


def core_metrics(table: pd.DataFrame) -> dict[str, str]:
    """Find the metric of each kind of core in `table` (of :func:`ncu.read`); kinds without one are left out."""
    there = {*table["metric"].unique()}
    found = {}
    for core in CORES:
        metric = next((name for name in (*names(core), *_ALSO.get(core, ())) if name in there), None)
        if metric:
            found[core] = metric
    return found


def core_report(table: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Compute the utilisation of each kind of core over all launches, and remarks for a reader.

    Args:
        table: result of :func:`ncu.read`.

    Raises:
        InvalidArgument: neither cycles nor any kind of core was measured; the message has the command that does.
    """
    metrics = core_metrics(table)
    if not metrics or CYCLES not in {*table["metric"].unique()}:
        wanted = ",".join([CYCLES, *(names(core)[-1] for core in CORES)])
        raise InvalidArgument(
            f"the file lacks {'the metrics of all cores' if not metrics else CYCLES}; "
            f"measure them with `ncu --csv --metrics {wanted}`"
        )
    wide = ncu.launches(table, [CYCLES, *metrics.values()])
    columns = {metric: core for core, metric in metrics.items()} | {CYCLES: "cycles"}
    found = core_utilization(wide.rename(columns=columns), [*metrics])
    notes = [f"{core} was not measured" for core in CORES if core not in metrics]
    notes += [
        f"{core}: {left} of {left + counted} launches have no value and are left out"
        for core, counted, left in zip(found["core"], found["counted"], found["left_out"], strict=True)
        if left
    ]
    return found, notes
