# SPDX-License-Identifier: MIT
"""Points that a workflow measures: modes × precisions × Bs."""

from __future__ import annotations

from . import modes, plan
from .launch import Point
from .settings import WorkflowSettings


def fixed_Bs(settings: WorkflowSettings, mode: modes.Mode) -> list[int] | None:
    """Return the Bs to measure where no search is needed; None where it is."""
    if mode.limit_B == 1:
        return [1]
    if settings.plan:
        return [B for B in settings.plan if mode.limit_B is None or mode.limit_B >= B]
    if settings.max_B:
        return drawn_Bs(settings, mode.name, min(settings.max_B, mode.limit_B or settings.max_B))
    return None


def drawn_Bs(settings: WorkflowSettings, mode: str, max_B: int) -> list[int]:
    """Bs of a mode up to `max_B`; equal for modes with the same maximum and settings, to be compared B by B."""
    own = settings.search[mode]
    return plan.expovariate_plan(max_B, own["max_num_Bs"], own["lambd"], settings.seed)


def planned_points(settings: WorkflowSettings) -> tuple[list[tuple[int, Point]], list[str]]:
    """Return (runs as repeat and point, remarks) as far as they are known without running anything.

    Where the largest B would be searched for, the preset's limit stands in for what the search will find.
    """
    points, remarks = [], []
    for name in settings.modes:
        mode = modes.get(name)
        if reason := mode.unavailable(settings.device):
            remarks.append(f"{name}: unavailable: {reason}")
            continue
        Bs = fixed_Bs(settings, mode)
        if Bs is None:
            limit = min((limit for limit in (mode.limit_B, settings.limit_B) if limit), default=None)
            Bs = drawn_Bs(settings, name, limit) if limit else [1]
            bound = f"at most {limit}" if limit else "without a limit"
            remarks.append(f"{name}: the largest B is searched for by dry runs (1, 2, 4, …), {bound}")
        points += [Point(name, precision, B) for precision in settings.precisions for B in Bs]
    return [(repeat, point) for repeat in range(settings.repeats) for point in points], remarks
