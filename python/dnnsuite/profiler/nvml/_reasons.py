# SPDX-License-Identifier: MIT
"""Reasons for a GPU's current clocks."""

from __future__ import annotations

# Bits of nvmlDeviceGetCurrentClocksEventReasons (NVML API reference, nvmlClocksEventReasons).
REASONS = {
    0x1: "idle",
    0x2: "application clocks set",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal slowdown by the driver",
    0x40: "thermal slowdown by the hardware",
    0x80: "power brake",
    0x100: "display clocks set",
    0x200: "board limit",
    0x400: "reliability limit",
}
SLOWED = 0x4 | 0x8 | 0x20 | 0x40 | 0x80 | 0x200 | 0x400  # the GPU would run faster if it could


def decode_reasons(bits: int) -> list[str]:
    """Return the reasons in words, lowest bit first; undocumented bits are named by their value."""
    known = [word for bit, word in REASONS.items() if bits & bit]
    rest = bits & ~sum(REASONS)
    unknown = [f"unknown reason {1 << i:#x}" for i in range(rest.bit_length()) if rest >> i & 1]
    return known + unknown
