# SPDX-License-Identifier: MIT
"""Plans to collect a set of metrics without running a step twice: groups of metrics that take turns by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...errors import InvalidArgument
from .catalogue import passes
from .roles import validate

_CONTEXT, _DEVICE = "context", "device"
_OF_THE_CONTEXT = "sm__cycles_active.avg"


@dataclass(frozen=True)
class Group:
    """Metrics that are collected together, over `passes` consecutive steps; `scope` is context or device."""

    metrics: tuple[str, ...]
    passes: int
    scope: str


@dataclass(frozen=True)
class CounterPlan:
    """Groups of metrics that take turns, one group per step."""

    chip: str
    collection: str
    groups: tuple[Group, ...]
    passes_together: int | None
    """Number of runs of the same work that collect all metrics; None if they cannot be mixed."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """All metrics, in the order of the groups."""
        return tuple(dict.fromkeys(metric for group in self.groups for metric in group.metrics))

    @property
    def steps(self) -> int:
        """Number of steps after which every metric has been counted once; in kernels mode, number of runs of each
        kernel."""
        return sum(group.passes for group in self.groups)

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        groups = [{**asdict(group), "metrics": list(group.metrics)} for group in self.groups]
        return {**asdict(self), "steps": self.steps, "groups": groups}


Plan = CounterPlan  # its earlier name, which stays


def plan(
    metrics: Sequence[str], chip: str, collection: str = "ranges", in_every_group: Sequence[str] = ()
) -> CounterPlan:
    """Group `metrics` so that each group takes one pass if the chip allows it. Each goes into the first group that
    fits.

    Metrics of the context (SMs, caches, memory) and of the device (PCIe, NVLink) never share a group, because CUPTI
    refuses that. Sampling has no groups: the sampler refuses metrics that do not fit into one pass.

    Args:
        metrics: full names.
        chip: name of the chip.
        collection: "ranges" or "sampling".
        in_every_group: metrics that are added to each group with room for them, because others are divided by them.

    Raises:
        InvalidArgument: some names cannot be collected on the chip; the message gives the nearest that can.
        Unavailable: there is no CUPTI, or it does not know the chip.
    """
    validate([*metrics, *in_every_group], chip, collection)
    wanted = list(dict.fromkeys(metrics))
    together = passes(tuple(wanted), chip, collection) if wanted else 0
    if together == 1:
        groups = [Group(tuple(wanted), 1, _scope(wanted, chip, collection))]
    else:
        scopes: dict[str, list[str]] = {}
        for metric in wanted:
            scopes.setdefault(_scope([metric], chip, collection), []).append(metric)
        groups = [
            group
            for scope, members in scopes.items()
            for group in _first_fit(members, chip, collection, scope, in_every_group)
        ]
    return CounterPlan(chip, collection, tuple(groups), together)


def plan_kernels(metrics: Sequence[str], chip: str) -> CounterPlan:
    """Plan the metrics of the context in one group: each kernel is replayed for every pass.

    Raises:
        InvalidArgument: no metric is left, as PCIe and NVLink are not counted per kernel; or a name is unknown.
    """
    validate(metrics, chip)
    wanted = [metric for metric in dict.fromkeys(metrics) if _scope([metric], chip, "ranges") == _CONTEXT]
    if not wanted:
        raise InvalidArgument(f"none of {', '.join(metrics)} is counted for a kernel; ask for it over steps")
    needed = passes(tuple(wanted), chip) or 1
    return CounterPlan(chip, "ranges", (Group(tuple(wanted), needed, _CONTEXT),), needed)


def _scope(metrics: list[str], chip: str, collection: str) -> str:
    """Find the scope of metrics: the context if they can be counted with an SM counter. Time, which fits both, counts
    as context."""
    return _CONTEXT if passes((_OF_THE_CONTEXT, *metrics), chip, collection) else _DEVICE


def _first_fit(
    metrics: list[str], chip: str, collection: str, scope: str, in_every_group: Sequence[str]
) -> list[Group]:
    groups: list[tuple[list[str], int]] = []
    shared = [metric for metric in in_every_group if _scope([metric], chip, collection) == scope]
    for metric in metrics:
        if metric in shared and any(metric in members for members, _ in groups):
            continue
        alone = passes((metric,), chip, collection) or 1
        for members, needed in groups:
            # A metric that needs two passes joins those that need two, for then it costs no step.
            if needed == alone and passes((*members, metric), chip, collection) == needed:
                members.append(metric)
                break
        else:
            groups.append((_with_shared(metric, alone, shared, chip, collection), alone))
    return [Group(tuple(members), needed, scope) for members, needed in groups]


def _with_shared(metric: str, needed: int, shared: list[str], chip: str, collection: str) -> list[str]:
    members = [metric]
    for other in shared:
        if other != metric and passes((*members, other), chip, collection) == needed:
            members.append(other)
    return members
