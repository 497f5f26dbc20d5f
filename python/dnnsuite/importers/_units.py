# SPDX-License-Identifier: MIT
"""Units as NVIDIA's tools write them, and what they are in base units: ns, byte, Hz, a count.

ncu scales what it prints (`Kbyte`, `msecond`, `Gbyte/second`; in newer versions `Mbyte/s`, `us`, `Ghz`); its
prefixes of bytes are decimal. Times become ns; a rate is per second.
"""

from __future__ import annotations

import functools

_SECONDS = {
    "second": 1e9,
    "msecond": 1e6,
    "usecond": 1e3,
    "nsecond": 1.0,
    "s": 1e9,
    "ms": 1e6,
    "us": 1e3,
    "µs": 1e3,
    "ns": 1.0,
}
_HERTZ = {"hz": 1.0, "khz": 1e3, "mhz": 1e6, "ghz": 1e9}
_PREFIXES = {
    "K": 1e3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
}
_WORDS = {
    "byte": "byte", "bytes": "byte", "b": "byte", "bit": "bit", "cycle": "cycle", "inst": "inst", "sector": "sector",
    "request": "request", "warp": "warp", "thread": "thread", "block": "block", "op": "op", "flop": "flop",
    "transaction": "transaction", "w": "W", "j": "J",
}  # fmt: skip


@functools.cache
def to_base(unit: str) -> tuple[float, str]:
    """Factor of a value in `unit`, and the base unit of the product.

    >>> to_base("Kbyte"), to_base("msecond"), to_base("cycle/nsecond")
    ((1000.0, 'byte'), (1000000.0, 'ns'), (1000000000.0, 'Hz'))

    A unit that is not known stays, with a factor of 1.
    """
    unit = unit.strip()
    above, slash, below = unit.partition("/")
    if slash and below in _SECONDS:
        factor, base = _simple(above)
        scale = factor * (1e9 / _SECONDS[below])
        return (scale, "Hz") if base == "cycle" else (scale, f"{base}/s")
    factor, base = _simple(above)
    return factor, f"{base}/{below}" if slash else base


def _simple(unit: str) -> tuple[float, str]:
    if unit in _SECONDS:
        return _SECONDS[unit], "ns"
    if unit.lower() in _HERTZ:
        return _HERTZ[unit.lower()], "Hz"
    if unit.lower() in _WORDS:
        return 1.0, _WORDS[unit.lower()]
    for prefix, factor in _PREFIXES.items():
        rest = unit.removeprefix(prefix)
        if rest != unit and rest.lower() in _WORDS:
            return factor, _WORDS[rest.lower()]
    return 1.0, unit
