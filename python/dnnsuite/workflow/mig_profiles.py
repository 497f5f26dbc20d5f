# SPDX-License-Identifier: MIT
"""MIG profiles by their slices, from what the driver lists: their ids differ from one GPU to another."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import Unavailable

_LINE = re.compile(r"\|\s+\d+\s+MIG\s+(\d+)g\.(\d+)gb(\S*)\s+(\d+)\s+\d+/(\d+)\s")


class MigProfile(NamedTuple):
    """A kind of GPU instance: compute slices, memory in GB as in its name, id, and the most of them at once."""

    slices: int
    memory_gb: int
    id: int
    most: int


def parse_profiles(listing: str) -> list[MigProfile]:
    """Return the plain profiles in the output of `nvidia-smi mig -lgip`; those with extras (`+me`, `+gfx`) are left
    out."""
    found = [match.groups() for match in map(_LINE.match, listing.splitlines()) if match]
    return [MigProfile(int(g), int(gb), int(id), int(most)) for g, gb, extras, id, most in found if not extras]


def choose_profiles(profiles: Sequence[MigProfile], n: int) -> list[MigProfile]:
    """Profiles of n instances, larger ones first: the largest that fits n times.

    Where that is the smallest there is, slices that are left over make some of them the next larger one. On a GPU of
    seven slices: 7 · 3,3 · 2,2,2 · 2,2,2,1 · 2,2,1,1,1 · 2,1,1,1,1,1 · 1,1,1,1,1,1,1.

    Raises:
        Unavailable: the GPU cannot be split so often, or nothing was listed.
    """
    by_slices: dict[int, MigProfile] = {}
    for profile in profiles:  # of one size the one with the least memory, of which there are most
        known = by_slices.get(profile.slices)
        if known is None or profile.most > known.most:
            by_slices[profile.slices] = profile
    sizes = sorted(by_slices)
    fitting = [by_slices[size] for size in sizes if by_slices[size].most >= n]
    if not fitting or n < 1:
        most = max((profile.most for profile in by_slices.values()), default=0)
        raise Unavailable(f"this GPU cannot be split into {n} MIG instances (at most {most})", "nvidia-smi mig -lgip")
    chosen = fitting[-1]
    larger = next((by_slices[size] for size in sizes if size > chosen.slices), None)
    if chosen.slices > sizes[0] or larger is None:
        return [chosen] * n
    left = sizes[-1] - n * chosen.slices
    raised = min(left // (larger.slices - chosen.slices), larger.most, n)
    return [larger] * raised + [chosen] * (n - raised)
