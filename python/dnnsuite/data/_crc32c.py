# SPDX-License-Identifier: MIT
"""CRC32C (Castagnoli), as TFRecord files have it, at the speed of numpy.

A CRC without its initial value is linear over GF(2): those of equal pieces are computed side by side and joined, for
which the CRC of the left one is shifted over the length of the right one.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from .._lazy import npt

if TYPE_CHECKING:
    Words = npt.NDArray[np.uint32]

_POLYNOMIAL = 0x82F63B78  # bits reversed
_PIECE = 64  # bytes
_LEVEL = 6  # 2**6 is a piece
_ONES = 0xFFFFFFFF


@cache
def _table() -> Words:
    """CRC of each byte `[256]`."""
    found = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        found = np.where(found & 1, (found >> 1) ^ np.uint32(_POLYNOMIAL), found >> 1).astype(np.uint32)
    return found


@cache
def _shift(level: int) -> Words:
    """Tables `[4, 256]` that shift a CRC over 2**level bytes of zeros, by its four bytes."""
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    moved = _table()[bits & 0xFF] ^ (bits >> 8) if level == 0 else _shifted(_shifted(bits, level - 1), level - 1)
    values = np.arange(256, dtype=np.uint32)
    tables = np.zeros((4, 256), np.uint32)
    for byte in range(4):
        for bit in range(8):
            tables[byte] ^= np.where(values >> bit & 1, moved[8 * byte + bit], 0).astype(np.uint32)
    return tables


def _shifted(crcs: Words, level: int) -> Words:
    """CRCs `[n]` shifted over 2**level bytes of zeros."""
    tables = _shift(level)
    found: Words = (
        tables[0][crcs & 0xFF] ^ tables[1][crcs >> 8 & 0xFF] ^ tables[2][crcs >> 16 & 0xFF] ^ tables[3][crcs >> 24]
    )
    return found


def crc32c(data: bytes) -> int:
    """Return the checksum of `data`."""
    initial = np.array([_ONES], np.uint32)
    for level in range(len(data).bit_length()):
        if len(data) >> level & 1:
            initial = _shifted(initial, level)
    return int(initial[0] ^ _linear(data)) ^ _ONES


def _linear(data: bytes) -> int:
    """CRC with the initial value 0, for which zeros in front change nothing."""
    pieces = 1 << max(0, -(-len(data) // _PIECE) - 1).bit_length()
    padded = np.zeros(pieces * _PIECE, np.uint8)
    padded[len(padded) - len(data) :] = np.frombuffer(data, np.uint8)
    columns = np.ascontiguousarray(padded.reshape(pieces, _PIECE).T)
    table, crcs = _table(), np.zeros(pieces, np.uint32)
    for column in columns:
        crcs = table[(crcs ^ column) & 0xFF] ^ (crcs >> 8)
    level = _LEVEL
    while len(crcs) > 1:
        crcs = _shifted(crcs[0::2], level) ^ crcs[1::2]
        level += 1
    return int(crcs[0])


def masked(data: bytes) -> int:
    """Return the checksum as TFRecord files store it: rotated, with a constant added, since data may hold checksums."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & _ONES
