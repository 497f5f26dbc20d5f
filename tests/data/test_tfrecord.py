# SPDX-License-Identifier: MIT
"""TFRecord files: another project's reader takes what is written, and what it writes is read; damage is named."""

import random
import struct
from pathlib import Path

import pytest
from tfrecord import example_pb2, reader, writer

from dnnsuite.data import tfrecord
from dnnsuite.data.tfrecord import crc32c
from dnnsuite.errors import InvalidArgument

EXAMPLE = {
    "image/encoded": [b"\xff\xd8 no picture"],
    "image/class/label": [1000],
    "image/class/text": ["tench, Tinca tinca"],
    "numbers": [0, -1, 127, 128, 2**40, -(2**63)],
    "image/object/bbox/xmin": [],
    "floats": [0.5, -2.0, 1e30],
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "train-00000-of-00001"


def written(path: Path, *contents: bytes) -> list[tfrecord.Place]:
    with open(path, "wb") as file:
        for content in contents:
            tfrecord.write(file, content)
    return list(tfrecord.places(path))


@pytest.mark.parametrize(
    ("data", "known"),  # RFC 3720, B.4
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_checksums_of_the_standard(data: bytes, known: int) -> None:
    assert crc32c(data) == known


def test_checksums_of_any_length_agree_with_another_package() -> None:
    other = pytest.importorskip("crc32c")
    generator = random.Random(0)
    for size in [*range(1, 140), 4095, 4096, 4097, 70_001]:
        data = generator.randbytes(size)
        assert crc32c(data) == other.crc32c(data), size


def test_an_example_is_read_by_protobuf_as_it_was_meant() -> None:
    message = example_pb2.Example.FromString(tfrecord.encode_example(EXAMPLE))
    features = message.features.feature
    assert set(features) == set(EXAMPLE)
    assert list(features["image/encoded"].bytes_list.value) == EXAMPLE["image/encoded"]
    assert list(features["image/class/text"].bytes_list.value) == [b"tench, Tinca tinca"]
    assert list(features["numbers"].int64_list.value) == EXAMPLE["numbers"]
    assert list(features["floats"].float_list.value) == [0.5, -2.0, struct.unpack("f", struct.pack("f", 1e30))[0]]


def test_what_protobuf_writes_is_read() -> None:
    message = example_pb2.Example()
    message.features.feature["label"].int64_list.value.extend([7, -7])
    message.features.feature["box"].float_list.value.extend([0.25])
    message.features.feature["name"].bytes_list.value.append(b"x.JPEG")
    message.features.feature["none"].int64_list.SetInParent()
    found = tfrecord.decode_example(message.SerializeToString())
    assert found == {"label": [7, -7], "box": [0.25], "name": [b"x.JPEG"], "none": []}


def test_numbers_that_are_not_packed_are_read() -> None:
    """As proto2 writers leave them."""
    numbers = b"\x08\x07\x08\x80\x01"  # 7, 128
    feature = b"\x1a" + bytes([len(numbers)]) + numbers
    entry = b"\x0a\x01n\x12" + bytes([len(feature)]) + feature
    features = b"\x0a" + bytes([len(entry)]) + entry
    assert tfrecord.decode_example(b"\x0a" + bytes([len(features)]) + features) == {"n": [7, 128]}


def test_another_projects_reader_takes_the_file(path: Path) -> None:
    written(path, *(tfrecord.encode_example({**EXAMPLE, "image/class/label": [i]}) for i in range(3)))
    wanted = {"image/encoded": "byte", "image/class/label": "int"}
    found = list(reader.tfrecord_loader(str(path), None, wanted))
    assert [int(each["image/class/label"][0]) for each in found] == [0, 1, 2]
    assert bytes(found[0]["image/encoded"]) == EXAMPLE["image/encoded"][0]


def test_what_another_projects_writer_writes_is_read(path: Path) -> None:
    made = writer.TFRecordWriter(str(path))
    for label in (5, 6):
        made.write({"label": (label, "int"), "image": (b"picture", "byte")})
    made.close()
    found = [tfrecord.decode_example(tfrecord.read(path, place)) for place in tfrecord.places(path)]
    assert found == [{"label": [label], "image": [b"picture"]} for label in (5, 6)]


def test_the_bytes_of_a_record_are_those_of_the_format(path: Path) -> None:
    """A golden file: length 3, its masked checksum, the data, theirs."""
    written(path, b"abc")
    assert path.read_bytes().hex() == (
        "0300000000000000" + struct.pack("<I", _mask(crc32c(bytes([3, *[0] * 7])))).hex()
        + b"abc".hex() + struct.pack("<I", _mask(0x364B3FB7)).hex()
    )  # fmt: skip


def _mask(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_a_damaged_byte_is_found_with_its_record(path: Path) -> None:
    first, second = written(path, b"first", b"second")
    content = bytearray(path.read_bytes())
    content[second.offset + 12] ^= 1
    path.write_bytes(content)
    places = list(tfrecord.places(path))
    assert tfrecord.read(path, first) == b"first"
    with pytest.raises(InvalidArgument, match=rf"{path} is damaged: .* at byte {second.offset} is wrong"):
        tfrecord.read(path, places[1])


def test_a_damaged_length_is_found(path: Path) -> None:
    _, second = written(path, b"first", b"second")
    content = bytearray(path.read_bytes())
    content[second.offset] ^= 1
    path.write_bytes(content)
    with pytest.raises(InvalidArgument, match=rf"{path} is damaged at byte {second.offset}"):
        list(tfrecord.places(path))


@pytest.mark.parametrize("lost", [1, 4, 5, 12, 21])
def test_a_file_that_is_cut_off_is_found(path: Path, lost: int) -> None:
    _, second = written(path, b"first", b"second")
    path.write_bytes(path.read_bytes()[:-lost])
    with pytest.raises(InvalidArgument, match=rf"{path} ends within the record at byte {second.offset}"):
        list(tfrecord.places(path))


@pytest.mark.parametrize("data", [b"\x0a", b"\x0a\x05ab", b"\xff" * 12, b"\x0b", b"\x08\x01"])
def test_what_is_no_example_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"field|number"):
        tfrecord.decode_example(data)


def test_a_feature_of_another_kind_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="name is"):
        tfrecord.encode_example({"name": [b"x", 1]})
