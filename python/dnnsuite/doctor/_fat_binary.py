# SPDX-License-Identifier: MIT
"""The GPUs that a library has code for, read from its fat binaries as nvcc lays them out. Needs no tool of CUDA's.

A fat binary is a header (magic, version and size of the header, size of what follows) and entries, each with a header
of its own: its kind (1: PTX, 2: machine code), sizes, and at byte 28 the architecture.

`.ci/release` runs this file alone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

_MAGIC = struct.pack("<I", 0xBA55ED50)
_PTX, _CODE = 1, 2


def architectures(library: Path) -> list[str]:
    """List the architectures: `sm_90` for machine code, `compute_120` for PTX, which later GPUs compile."""
    data = library.read_bytes()
    found = {entry for at in _places(data) for entry in _entries(data, at)}
    return [f"{'sm' if kind == _CODE else 'compute'}_{number}" for number, kind in sorted(found)]


def _places(data: bytes) -> Iterator[int]:
    at = data.find(_MAGIC)
    while at >= 0:
        yield at
        at = data.find(_MAGIC, at + 1)


def _entries(data: bytes, at: int) -> Iterator[tuple[int, int]]:
    """Yield (architecture, kind) of each entry of the fat binary at a place; nothing where it only looks like one."""
    try:
        version, header, size = struct.unpack_from("<HHQ", data, at + 4)
        place, end = at + header, at + header + size
        while version == 1 and place < end <= len(data):
            kind, _, header, size = struct.unpack_from("<HHIQ", data, place)
            if header < 32:
                return
            if kind in (_PTX, _CODE):
                yield struct.unpack_from("<I", data, place + 28)[0], kind
            place += header + size
    except struct.error:
        return


def runs_on(built: list[str], capability: tuple[int, int]) -> bool:
    """True if a GPU runs one of the architectures: machine code of its generation, or PTX that is not newer."""
    for name in built:
        kind, number = name.split("_")
        major, minor = divmod(int(number), 10)
        if kind == "compute" and (major, minor) <= capability:
            return True
        if kind == "sm" and major == capability[0] and minor <= capability[1]:
            return True
    return False
