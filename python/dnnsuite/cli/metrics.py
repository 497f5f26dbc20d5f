# SPDX-License-Identifier: MIT
"""`dnnsuite metrics`: names, passes and roles of the GPU's counters on every chip, without a GPU."""

from __future__ import annotations

import fnmatch
import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from .._shown import wrapped
from ..errors import InvalidArgument, Unavailable, did_you_mean, some_of
from ._late import counters, roles_of
from ._options import Json, Text
from ._status import say

Chip = Annotated[Text, "A chip, e.g. GH100 (H100, H200).  [this machine's GPU]"]
Pattern = Annotated[str, typer.Argument(help="A shell pattern, or a part of the name.")]
# Chips of the products that users know by another name.
PRODUCTS = {
    product: chip
    for chip, products in {
        "GV100": "V100", "TU104": "T4", "GA100": "A100 A800", "GA102": "A10 A40 RTX3090",
        "GH100": "H100 H200 H20 GH200", "AD104": "L4", "AD102": "L40 L40S RTX4090",
        "GB100": "B100 B200 GB200", "TU102": "RTX2080TI", "GB202": "RTX5090",
    }.items()
    for product in products.split()
}  # fmt: skip

Sampling = Annotated[bool, "Metrics that can be sampled over time."]


def _chip(asked: str | None, collection: str = "ranges") -> str:
    """Return the chip asked for, or this machine's. Raises InvalidArgument naming the chips where there is neither."""
    from ..profiler.counters.catalogue import CUPTI

    if asked:
        return _named(asked)
    known = counters.chips(collection)
    try:
        found: str = CUPTI.device(0).chip
        return found
    except Unavailable as missing:
        raise InvalidArgument(
            f"no GPU to take the chip from; name one: --chip {', '.join(known[:7])}, ... (`dnnsuite metrics roles` "
            f"has all {len(known)})"
        ) from missing


def _named(asked: str) -> str:
    """Find the chip of this name, or of this product (H100) with a line that says so."""
    name = asked.upper().replace(" ", "")
    if name not in PRODUCTS:
        return name
    say(f"the chip of {name} is {PRODUCTS[name]}")
    return PRODUCTS[name]


def list_metrics(pattern: Pattern = "*", chip: Chip = None, sampling: Sampling = False, as_json: Json = False) -> int:
    """List a chip's metrics: name, unit, description.

    Also shows which part of the chip counts each; a submetric follows the name.
    """
    collection = "sampling" if sampling else "ranges"
    chosen = _chip(chip, collection)
    found = counters.metrics(chosen, pattern, collection)
    if as_json:
        print(json.dumps({"chip": chosen, "collection": collection, "metrics": [asdict(one) for one in found]}))
    else:
        for one in found:
            print(f"{one.name}  [{one.unit or one.type}, {one.hardware_unit}]  {one.description}")
        print(f"{len(found)} metrics of {chosen}")
    return 0 if found else 1


def plan(
    metrics: Annotated[list[str], "Presets, roles and metrics, e.g. cores,memory."],
    chip: Chip = None,
    kernels: Annotated[bool, "Count each kernel separately, and replay it for every pass."] = False,
    as_json: Json = False,
) -> int:
    """Show how metrics would be collected: passes, groups.

    Training steps rotate through the groups.
    """
    from ..profiler.counters.planner import plan as make_plan
    from ..profiler.counters.planner import plan_kernels

    chosen = roles_of.select(metrics, _chip(chip))
    shared = [metric for metric, role in chosen.roles.items() if role in roles_of.SHARED]
    if kernels:
        made = plan_kernels(chosen.metrics, chosen.chip)
    else:
        made = make_plan(chosen.metrics, chosen.chip, chosen.collection, shared)
    if as_json:
        print(json.dumps({**made.to_dict(), "roles": chosen.roles, "left_out": chosen.left_out}))
    else:
        print(_describe(made, chosen, kernels))
    return 0


def _describe(made: counters.CounterPlan, chosen: counters.Selection, kernels: bool) -> str:
    lines = []
    for number, group in enumerate(made.groups, 1):
        often = "1 pass" if group.passes == 1 else f"{group.passes} passes"
        lines.append(f"group {number}: {often}, counted for the {group.scope}")
        lines += [f"  {chosen.roles.get(metric, ''):<12}{metric}" for metric in group.metrics]
    lines.append(_summary(made, kernels))
    lines += [f"left out: {line}" for line in chosen.left_out]
    return "\n".join(lines)


def _summary(made: counters.CounterPlan, kernels: bool) -> str:
    count = f"{made.chip}: {len(made.metrics)} metrics"
    if kernels:
        return f"{count}; every kernel runs alone, in {made.steps} passes"
    if made.collection == "sampling":
        return f"{count}, sampled together"
    if made.steps == 1:
        return f"{count} in one pass: every step is counted in full, none is run again"
    return f"{count} in {len(made.groups)} groups: a cycle takes {made.steps} steps, none is run again"


def roles(
    pattern: Annotated[str, typer.Argument(help="Roles to show.")] = "*",
    chip: Annotated[Text, "A chip, e.g. GH100 (H100, H200).  [all]"] = None,
    sampling: Sampling = False,
    as_json: Json = False,
) -> int:
    """Show which metric a role (fma, dram, ...) is on a chip.

    Without --chip, on every chip.
    """
    collection = "sampling" if sampling else "ranges"
    shown = {name: role for name, role in counters.ROLES.items() if fnmatch.fnmatch(name, pattern) or pattern in name}
    chip = _named(chip) if chip else None
    asked = [chip] if chip else list(counters.chips(collection))
    table = {one: {name: _resolved(name, one, collection) for name in shown} for one in asked}
    if as_json:
        warnings = {one: list(counters.overlaps(one).values()) for one in asked}
        about = {name: {"unit": role.unit, "definition": role.definition} for name, role in shown.items()}
        print(json.dumps({"collection": collection, "roles": about, "chips": table, "overlaps": warnings}))
        return 0
    if not shown:
        available = some_of(counters.ROLES, "`dnnsuite metrics roles`")
        say(f"unknown role {pattern!r}{did_you_mean(pattern, counters.ROLES)}; available: {available}")
    for name, role in shown.items():
        print(f"{name}: {role.definition}")
        print(_by_metric({one: table[one][name] for one in asked}, alone=bool(chip)))
    if chip:
        for why in counters.overlaps(chip).values():
            print(f"do not add: {why}")
    return 0 if shown else 1


def _resolved(role: str, chip: str, collection: str) -> str | None:
    from ..profiler.counters.catalogue import host

    host(chip, collection)  # an unknown chip is an error, a role that it lacks is not
    try:
        return counters.resolve(role, chip, collection)
    except Unavailable:
        return None


def _by_metric(metrics: dict[str, str | None], alone: bool) -> str:
    """One line for each metric with the chips that have it, so that 29 chips fit on a page."""
    chips_of: dict[str, list[str]] = {}
    for chip, metric in metrics.items():
        chips_of.setdefault(metric or "none", []).append(chip)
    if alone:
        return "\n".join(f"  {metric}" for metric in chips_of)
    if len(chips_of) == 1:
        return f"  {next(iter(chips_of))}  (all chips)"
    lines = []
    for metric, having in chips_of.items():
        lines.append(f"  {metric}")
        lines += wrapped(" ".join(having), " " * 6)
    return "\n".join(lines)


def support(device: Annotated[int, "Number of the GPU, in CUDA's order."] = 0, as_json: Json = False) -> int:
    """Say whether counters can be read here.

    Each obstacle comes with its remedy.
    """
    found = counters.support(device)
    if as_json:
        print(json.dumps({"device": device, "features": [one.to_dict() for one in found]}))
    else:
        for one in found:
            detail = "; ".join(part for part in (one.reason, one.remedy) if part)
            print(f"{one.name:<12}{'ok' if one.available else 'no':<4}{detail}".rstrip())
    interfaces: list[Any] = [one.available for one in found if one.name in ("ranges", "sampling")]
    return 0 if interfaces and all(interfaces) else 1
