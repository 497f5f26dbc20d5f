# SPDX-License-Identifier: MIT
"""Roles and pass counts of every preset on every chip, as this CUPTI has them, for comparison with the recorded ones.

`python tests/support/cupti_plans.py` records them, as tests/profiler/counters/plans-VERSION.json.
"""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from dnnsuite.errors import Unavailable
from dnnsuite.profiler.counters import PRESETS, ROLES, catalogue, plan, resolve, select
from dnnsuite.profiler.counters.roles import SAMPLED, SHARED

FOLDER = Path(__file__).parent.parent / "profiler/counters"


def missing() -> str:
    """Why there is no CUPTI here; empty where there is."""
    try:
        catalogue.version()
    except Unavailable as error:
        return str(error)
    return ""


needs_cupti = pytest.mark.skipif(bool(missing()), reason=missing())


def recorded(version: int) -> Path:
    return FOLDER / f"plans-{version}.json"


def roles_of(chip: str) -> dict[str, str | None]:
    """Metric of each role, None where the chip has none."""

    def metric(role: str) -> str | None:
        try:
            return resolve(role, chip)
        except Unavailable:
            return None

    return {role: metric(role) for role in ROLES}


def plans_of(chip: str, presets: Iterable[str] = PRESETS) -> dict[str, object]:
    """Of each preset: [passes together, [metrics, passes, scope] of each group]; None where the chip lacks it."""
    found: dict[str, object] = {}
    for preset in presets:
        if preset in SAMPLED and chip not in catalogue.chips("sampling"):
            found[preset] = None
            continue
        chosen = select(preset, chip)
        shared = [metric for metric, role in chosen.roles.items() if role in SHARED]
        made = plan(chosen.metrics, chip, chosen.collection, shared)
        groups = [[len(group.metrics), group.passes, group.scope] for group in made.groups]
        found[preset] = [made.passes_together, groups]
    return found


def main() -> None:
    version = catalogue.version()
    chips = {chip: {"roles": roles_of(chip), "plans": plans_of(chip)} for chip in catalogue.chips()}
    rows = ",\n".join(f" {json.dumps(chip)}: {json.dumps(found)}" for chip, found in chips.items())
    recorded(version).write_text(f"{{\n{rows}\n}}\n", encoding="utf-8")
    print(recorded(version))


if __name__ == "__main__":
    main()
