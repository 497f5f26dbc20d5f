# SPDX-License-Identifier: MIT
"""Settings of the search for the largest B, and of the Bs drawn from it, for each mode: HFTA's flags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import InvalidArgument

SEARCHED = ("concurrent", "mps", "mig", "hfta")  # modes whose largest B is searched for
# Name → (kind of number, meaning).
FLAGS: dict[str, tuple[type, str]] = {
    "dry_run_repeats": (int, "Dry runs that prove a B."),
    "max_num_Bs": (int, "How many Bs to measure."),
    "lambd": (float, "How dense the Bs are near 1."),
    "dry_run_epochs": (int, "Epochs of a dry run."),
    "dry_run_iters_per_epoch": (int, "Iterations of its epochs."),
}
_DEFAULTS = {
    "dry_run_repeats": 1, "max_num_Bs": 5, "lambd": 4.0, "dry_run_epochs": 1, "dry_run_iters_per_epoch": 2,
}  # fmt: skip
_HFTA = {
    mode: {
        "dry_run_repeats": repeats, "max_num_Bs": Bs, "lambd": 4.0, "dry_run_epochs": 2,
        "dry_run_iters_per_epoch": iters,
    }
    for mode, repeats, Bs, iters in (
        ("concurrent", 10, 5, 10), ("mps", 10, 5, 10), ("mig", 1, 5, 10), ("hfta", 1, 10, 3),
    )
}  # fmt: skip


def as_flag(mode: str, name: str) -> str:
    """Return the command line's option, as HFTA spells it: `--hfta-max-num-Bs`."""
    return f"--{mode}-{name.replace('_', '-')}"


def resolve_search(asked: Mapping[str, Any], preset: Mapping[str, Any], paper: bool) -> dict[str, dict[str, Any]]:
    """Resolve the settings of each mode: its own flag, else the flag for all modes, else the preset's.

    Args:
        asked: `hfta_max_num_Bs` and the like, and `max_num_Bs` and `lambd` for all modes.
        preset: the job's; with `search`, settings of single modes.
        paper: HFTA's own values stand where the preset says nothing of a mode.

    Raises:
        InvalidArgument: a value that is too small, by its flag.
    """
    common = {name: preset[name] for name in ("max_num_Bs", "lambd") if name in preset and not paper}
    if "dry_run_iters" in preset and not paper:
        common["dry_run_iters_per_epoch"] = preset["dry_run_iters"]
    given = {name: asked[name] for name in ("max_num_Bs", "lambd") if asked.get(name) is not None}
    found = {}
    for mode in SEARCHED:
        own = {n: asked[f"{mode}_{n}"] for n in FLAGS if asked.get(f"{mode}_{n}") is not None}
        base = _HFTA[mode] if paper else _DEFAULTS
        found[mode] = {**base, **common, **dict(preset.get("search", {}).get(mode, {})), **given, **own}
        _check(mode, own, found[mode])
    return found


def _check(mode: str, own: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        flag = as_flag(mode, name) if name in own else f"--{name.replace('_', '-')}"
        if name == "lambd" and not value > 0:
            raise InvalidArgument(f"{flag} {value}: must be positive")
        if name != "lambd" and not value >= 1:
            raise InvalidArgument(f"{flag} {value}: must be at least 1")
