# SPDX-License-Identifier: MIT
"""Shares, outcomes and the isolation that a machine grants, as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .._C import read_hierarchies
from .._shown import aligned
from .plan import Plan


def hierarchies() -> list[dict[str, Any]]:
    """Return the mounted trees of control groups, with this process's group in each."""
    return [dict(hierarchy) for hierarchy in read_hierarchies()]


def _table(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(aligned(rows, left=range(len(rows[0]))))


def render_plan(plan: Plan) -> str:
    """Render the shares as a table, with remarks below it."""
    rows = [("share", "cores", "threads", "CPUs", "nodes", "memory GiB", "GPU")]
    for slot in (*plan.slots, plan.all):
        gpus = ",".join(plan.gpus[i].uuid or str(i) for i in slot.gpus) if slot is not plan.all else str(len(slot.gpus))
        rows.append(
            (
                slot.name,
                str(slot.cores),
                str(slot.threads),
                slot.cpus,
                slot.mems + (" *" if slot.crosses_numa else ""),
                f"{slot.memory_bytes / (1 << 30):.2f}",
                gpus or "-",
            )
        )
    said = [_table(rows)]
    if any(slot.crosses_numa for slot in plan.slots):
        said.append("* its CPUs are of several NUMA nodes")
    said.append(f"comparable: {'yes' if plan.comparable else 'no'}   plan {plan.hash}")
    said += [f"  {reason}" for reason in plan.reasons]
    said += [f"unused CPUs: {plan.unused_cpus}"] if plan.unused_cpus else []
    said += [f"note: {note}" for note in plan.notes]
    return "\n".join(said)


def render_probe(found: Mapping[str, Any]) -> str:
    """Render the mounted control groups, and the means that hold a share."""
    rows = [("version", "controllers", "mounted at", "own group", "")]
    rows += [
        (
            str(h["version"]),
            " ".join(h["controllers"]) or "-",
            h["mount_point"],
            h["own"] or "outside",
            "read-only" if h["read_only"] else "",
        )
        for h in found["hierarchies"]
    ]
    said = [_table(rows)] if found["hierarchies"] else ["no control groups are mounted"]
    pinning = found["pinning"]
    said.append(f"pinning: {pinning['level']} (CPUs: {pinning['cpus']}, memory: {pinning['memory']})")
    said.append(f"processes start by {found['verified']['method']}")
    said += [f"  {reason}" for reason in pinning["reasons"]]
    return "\n".join(said)


def render_outcomes(pairs: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
    """Render a line for each command that ran."""
    rows = [("share", "status", "seconds", "CPU s", "peak MiB", "pinning", "")]
    for name, outcome in pairs:
        peak = outcome["memory_peak_bytes"]
        remark = "oom_killed" if outcome["oom_killed"] else "timed out" if outcome["timed_out"] else ""
        rows.append(
            (
                name,
                str(outcome["returncode"]),
                f"{outcome['elapsed_s']:.2f}",
                f"{outcome['cpu_seconds']:.2f}",
                "-" if peak is None else f"{peak / (1 << 20):.1f}",
                outcome["level"],
                remark,
            )
        )
    return _table(rows)
