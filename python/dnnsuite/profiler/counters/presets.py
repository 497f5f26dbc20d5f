# SPDX-License-Identifier: MIT
"""Sets of roles by name, and the choice of a chip's metrics from presets, roles and metric names."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import InvalidArgument, Unavailable, some_of
from .catalogue import accepts, host, passes
from .roles import CORES, ROLES, names, resolve
from .validation import validate

SHARED = ("time", "cycles", "gpu_active")
"""Denominators of other roles, counted with every group of metrics that has room for them."""
PRESETS: dict[str, tuple[str, ...]] = {
    "cores": (*SHARED, "sm_active", *CORES),
    "fp32": (*SHARED, "fma", "fma_active"),
    "memory": (*SHARED, "dram", "dram_read", "dram_write", "l2_bytes", "l2_hit", "l1_hit"),
    "timeline": ("gpu_active", "sm_active", "tensor", "fma", "dram_read", "dram_write", "sfu", "occupancy", "alu",
                 "fp64", "pcie_read", "pcie_write"),
    "all": tuple(ROLES),
}  # fmt: skip
"""Roles by the name of the preset. `timeline` is sampled over time, its roles in the order of their importance; the
others are counted over ranges."""

SAMPLED = ("timeline",)


@dataclass(frozen=True)
class Selection:
    """Request resolved on one chip: full metric names, their roles if they have one, and roles that were left out."""

    chip: str
    collection: str
    metrics: tuple[str, ...]
    roles: dict[str, str]  # by metric
    left_out: tuple[str, ...]  # one line each


def select(asked: str | Sequence[str], chip: str, collection: str | None = None) -> Selection:
    """Resolve any mixture of presets, roles and full metric names into metrics of `chip`.

    A preset's role that the chip lacks is left out and noted; a role that was named is an error. `collection` ("ranges"
    or "sampling") is by default the preset's.

    Raises:
        InvalidArgument: a name is none of the three, with the nearest; or a sampled preset is mixed with others.
        Unavailable: no CUPTI, an unknown chip, or a role that this chip has not.
    """
    words = [asked] if isinstance(asked, str) else list(asked)
    words = list(dict.fromkeys(part for word in words for part in word.split(",") if part))
    if not words:
        raise InvalidArgument(f"no metrics named; presets: {', '.join(PRESETS)}")
    sampled = [word for word in words if word in SAMPLED]
    if sampled and len(words) > 1:
        raise InvalidArgument(f"{sampled[0]!r} is sampled over time and goes with no other: ask for it alone")
    if sampled and collection != "ranges":
        return _fit_one_pass(words[0], chip)
    return _each(words, chip, collection or "ranges")


def _each(words: list[str], chip: str, collection: str) -> Selection:
    host(chip, collection)  # an unknown chip before unknown names
    metrics: dict[str, str] = {}
    left_out, plain = [], []
    for word in words:
        if word in PRESETS:
            for role in PRESETS[word]:
                try:
                    metrics[resolve(role, chip, collection)] = role
                except Unavailable as missing:
                    left_out.append(missing.what)
        elif word in ROLES:
            metrics[resolve(word, chip, collection)] = word
        elif "__" in word:
            plain.append(word)
        else:
            near = difflib.get_close_matches(word, [*PRESETS, *ROLES], n=3)
            hint = f"did you mean {', '.join(near)}? " if near else ""
            raise InvalidArgument(
                f"{word!r} is not a preset, a role or a metric; {hint}"
                f"presets: {', '.join(PRESETS)}; roles: {some_of(ROLES, '`dnnsuite metrics roles`')}"
            )
    validate(plain, chip, collection)
    chosen = tuple(dict.fromkeys([*metrics, *plain]))
    return Selection(chip, collection, chosen, metrics, tuple(dict.fromkeys(left_out)))


def _fit_one_pass(preset: str, chip: str) -> Selection:
    """Take each role by the first of its names that fits beside those before it: sampling has one pass."""
    host(chip, "sampling")  # an unknown chip is an error, and not a chip without roles
    metrics: dict[str, str] = {}
    left_out = []
    for role in PRESETS[preset]:
        possible = [metric for metric in names(role, "sampling") if accepts(metric, chip, "sampling")]
        fitting = (metric for metric in possible if passes((*metrics, metric), chip, "sampling") == 1)
        chosen = next(fitting, None)
        if chosen:
            metrics[chosen] = role
        else:
            why = "does not fit into the one pass" if possible else "cannot be sampled"
            left_out.append(f"role {role!r} {why} on {chip}")
    return Selection(chip, "sampling", tuple(metrics), metrics, tuple(left_out))
