# SPDX-License-Identifier: MIT
"""TFRecord files and the examples in them, written and read without TensorFlow.

A record is its length (64 bits, little endian), the length's checksum, the data, the data's checksum; the data of a
`tf.train.Example` are a protocol buffer: a map from names to lists of bytes, numbers or whole numbers.

The checksum is CRC32C (Castagnoli), at the speed of numpy. A CRC without its initial value is linear over GF(2): those
of equal pieces are computed side by side and joined, for which the CRC of the left one is shifted over the length of
the right one.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from .._lazy import npt
from .._lazy import numpy as np
from ..errors import InvalidArgument

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


def masked_crc32c(data: bytes) -> int:
    """Return the checksum as TFRecord files store it: rotated, with a constant added, since data may hold checksums."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & _ONES


Value = bytes | int | float | str
Example = Mapping[str, Sequence[Value]]

_HEAD, _TAIL = 12, 4  # bytes around the data of a record
_LENGTH = struct.Struct("<Q")
_SUM = struct.Struct("<I")
_BYTES, _FLOATS, _INTEGERS = 1, 2, 3  # fields of tf.train.Feature


class Place(NamedTuple):
    """A record in a file: `offset` of its head, `size` of its data, in bytes."""

    offset: int
    size: int


def write(file: BinaryIO, data: bytes) -> None:
    """Append a record."""
    length = _LENGTH.pack(len(data))
    file.write(length + _sum_of(length) + data + _sum_of(data))


def _sum_of(data: bytes) -> bytes:
    """Checksum as it stands in the file."""
    return _SUM.pack(masked_crc32c(data))


def places(path: Path) -> Iterator[Place]:
    """Yield the records of a file, found by their heads; the data are not read.

    Raises:
        InvalidArgument: the file cannot be read, is damaged or cut off; the message names it and the offset.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            end, offset = os.fstat(file.fileno()).st_size, 0
            while offset < end:
                size = _size(path, offset, os.pread(file.fileno(), _HEAD, offset))
                if offset + _HEAD + size + _TAIL > end:
                    raise InvalidArgument(f"{path} ends within the record at byte {offset}: it is cut off")
                yield Place(offset, size)
                offset += _HEAD + size + _TAIL
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read: {error.strerror}") from error


def _size(path: Path, offset: int, head: bytes) -> int:
    if len(head) < _HEAD:
        raise InvalidArgument(f"{path} ends within the record at byte {offset}: it is cut off")
    length, told = head[:8], head[8:]
    if _sum_of(length) != told:
        raise InvalidArgument(f"{path} is damaged at byte {offset}: the checksum of the record's length is wrong")
    return int(_LENGTH.unpack(length)[0])


def read(path: Path, place: Place) -> bytes:
    """Read the data of a record and check them.

    Raises:
        InvalidArgument: they are damaged; the message names the file and the offset.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            found = os.pread(file.fileno(), place.size + _TAIL, place.offset + _HEAD)
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read: {error.strerror}") from error
    data, told = found[: place.size], found[place.size :]
    if len(told) < _TAIL:
        raise InvalidArgument(f"{path} ends within the record at byte {place.offset}: it is cut off")
    if _sum_of(data) != told:
        raise InvalidArgument(f"{path} is damaged: the checksum of the record at byte {place.offset} is wrong")
    return data


def encode_example(example: Example) -> bytes:
    """Encode a `tf.train.Example`: for each name a list of bytes (or texts), of floats or of integers."""
    features = b"".join(
        _field(1, _field(1, name.encode()) + _field(2, _feature(name, values)))
        for name, values in sorted(example.items())
    )
    return _field(1, features)


def _feature(name: str, values: Sequence[Value]) -> bytes:
    if all(isinstance(value, (bytes, str)) for value in values) and values:
        texts = (value.encode() if isinstance(value, str) else value for value in values)
        return _field(_BYTES, b"".join(_field(1, text) for text in texts if isinstance(text, bytes)))
    if any(isinstance(value, float) for value in values):
        numbers = [float(value) for value in values]
        return _field(_FLOATS, _packed(struct.pack(f"<{len(numbers)}f", *numbers)))
    if not all(isinstance(value, int) for value in values):
        raise InvalidArgument(f"{name} is {values!r}: a feature is of bytes, of floats or of integers")
    return _field(_INTEGERS, _packed(b"".join(_varint(int(value)) for value in values)))


def _packed(content: bytes) -> bytes:
    return _field(1, content) if content else b""


def _field(number: int, content: bytes) -> bytes:
    """Return a field that has a length."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """Seven bits a byte, low ones first; a negative number has 64 bits."""
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def decode_example(data: bytes) -> dict[str, list[Value]]:
    """Decode the lists of a `tf.train.Example` by name.

    Raises:
        ValueError: `data` are no example; the message says why.
    """
    found: dict[str, list[Value]] = {}
    for features in _all(data, 1):
        for entry in _all(features, 1):
            name = next(iter(_all(entry, 1)), b"").decode()
            found[name] = _values(next(iter(_all(entry, 2)), b""))
    return found


def _values(feature: bytes) -> list[Value]:
    for number, content in _fields(feature):
        parts = [part for field, part in _fields(_sized(content)) if field == 1]
        if number == _BYTES:
            return [_sized(part) for part in parts]
        if number == _FLOATS:
            return [each for part in parts for each in _floats(part)]
        if number == _INTEGERS:
            return [each for part in parts for each in _integers(part)]
    return []


def _floats(part: int | bytes) -> Iterable[float]:
    content = _sized(part)
    if len(content) % 4:
        raise ValueError("a list of floats ends within one")
    return struct.unpack(f"<{len(content) // 4}f", content)


def _integers(part: int | bytes) -> Iterator[int]:
    """One alone, or many packed."""
    if isinstance(part, int):
        yield _signed(part)
        return
    at = 0
    while at < len(part):
        value, at = _read_varint(part, at)
        yield _signed(value)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _sized(content: int | bytes) -> bytes:
    if isinstance(content, int):
        raise ValueError("a number where a text or a list should be")
    return content


def _all(data: bytes, wanted: int) -> Iterator[bytes]:
    return (_sized(content) for number, content in _fields(data) if number == wanted)


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (number, content) of each field; a number, or bytes."""
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _read_varint(data, at)
            yield key >> 3, value
            continue
        if kind == 2:
            size, at = _read_varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"a field of the unknown kind {kind}")
        if at + size > len(data):
            raise ValueError("a field is longer than the message")
        yield key >> 3, data[at : at + size]
        at += size


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("a number has no end")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
