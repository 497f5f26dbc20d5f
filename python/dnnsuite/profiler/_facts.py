# SPDX-License-Identifier: MIT
"""Facts for the rules of advice, derived from a profile's tables."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .._lazy import pandas as pd
from ._advice import Facts
from ._op_classes import TRANSPARENT
from .cpu import is_compiled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .data import ProfileData

_PRODUCTS = ("gemm", "conv", "attention")
_NARROW = r"(?i)bf16|f16|half|s884|s1688(?!tf32)|e4m3|fp8"  # in names of kernels that compute with 8 or 16 bits


def facts(profile: ProfileData) -> Facts:
    """Return the facts of a profile that has observed at least one step."""
    tables, steps = profile.tables, len(profile.active)
    table = tables.get("breakdown")
    shares = dict(zip(table["class"], table["share_pct"], strict=True)) if table is not None else {}
    ops = tables.get("ops")
    count = mean_us = None
    if ops is not None and len(ops) and steps:
        working = ops.loc[~ops["class"].isin(TRANSPARENT), "self_ns"]
        count = len(working) / steps
        mean_us = float(working.mean()) / 1e3 if len(working) else None
    cost = profile.overhead
    kernels = tables.get("kernels")
    return Facts(
        shares=shares,
        on_gpu=kernels is not None and len(kernels) > 0,
        loader_workers=profile.loader_workers,
        ops_per_step=count,
        mean_op_us=mean_us,
        overhead_pct=cost.pct if cost and cost.resolved else None,
        optimizer=profile.optimizer,
        compiled=ops is not None and any(map(is_compiled, ops["name"].astype(str).unique())),
        graphs=kernels is not None and "graph_id" in kernels and bool((kernels["graph_id"] != 0).any()),
        precision=profile.about.get("precision") or _precision(tables),
        cpu_busy_pct=cpu_busy_pct(profile),
        cpus=len(os.sched_getaffinity(0)),
        displaced_pct=displaced_pct(profile),
        models=profile.about.get("B", 0),
        memory_shares=_memory_shares(profile),
    )


def cpu_busy_pct(profile: ProfileData) -> float | None:
    """Compute CPU time of the process over (wall time x usable CPUs) in the observed steps, percent."""
    if not profile.wall_ns:
        return None
    cpu_ns = sum(step.process_cpu_ns for step in profile.active)
    return 100 * cpu_ns / profile.wall_ns / len(os.sched_getaffinity(0))


def displaced_pct(profile: ProfileData) -> float | None:
    """Compute the time for which the loop's thread was runnable without a CPU, percent of the observed steps' wall
    time."""
    if not profile.wall_ns:
        return None
    return 100 * sum(step.displaced_ns for step in profile.active) / profile.wall_ns


def _precision(tables: Mapping[str, pd.DataFrame]) -> str | None:
    """Precision in which most products and convolutions were computed, by operators' types or kernels' names; None
    where neither tells."""
    ops, kernels = tables.get("ops"), tables.get("kernels")
    if ops is not None and "dtype" in ops and len(products := ops[ops["class"].isin(_PRODUCTS)]):
        times = (products["t1_ns"] - products["t0_ns"]).astype(float)
        narrow = products["dtype"].isin(["c10::BFloat16", "c10::Half"])
        return "amp" if times[narrow].sum() > 0.5 * times.sum() else "fp32"
    if kernels is not None and len(products := kernels[kernels["class"].isin(_PRODUCTS)]):
        times = (products["t1_ns"] - products["t0_ns"]).astype(float)
        narrow = products["name"].astype(str).str.contains(_NARROW)
        return "amp" if times[narrow].sum() > 0.5 * times.sum() else None
    return None


def _memory_shares(profile: ProfileData) -> dict[str, float]:
    table = profile.tables.get("memory")
    if table is None or table.empty:
        return {}
    table = table[table["class"] != "workspace and other"]
    whole = max(1, table["bytes"].sum())
    return {str(name): 100 * value / whole for name, value in zip(table["class"], table["bytes"], strict=True)}
