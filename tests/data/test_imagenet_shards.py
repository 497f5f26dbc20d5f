# SPDX-License-Identifier: MIT
"""Class folders become shards that another reader takes and training reads: the same pictures, each once."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tfrecord import reader

from dnnsuite.data import imagenet_shards, tfrecord
from dnnsuite.errors import InvalidArgument
from dnnsuite.training import Settings, find_data

CLASSES = ("n01440764", "n01443537", "n01484850")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    draws = np.random.default_rng(0)
    for part, count in (("train", 5), ("val", 2)):
        for name in CLASSES:
            (tmp_path / part / name).mkdir(parents=True)
            for i in range(count):
                pixels = draws.integers(0, 256, (20, 30, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / part / name / f"{name}_{i}.JPEG", quality=90)
    return tmp_path


def converted(root: Path, shards: int = 4, validation: int = 2) -> imagenet_shards.Conversion:
    conversion = imagenet_shards.plan(root, None, shards, validation)
    imagenet_shards.convert(conversion, workers=2)
    return conversion


def test_every_image_is_in_one_shard_and_as_the_original_writes_it(root: Path) -> None:
    converted(root)
    names = sorted(path.name for path in (root / "TFRecords").iterdir())
    assert names == [
        "shards.json",
        *(f"train-{i:05d}-of-00004" for i in range(4)),
        *(f"validation-{i:05d}-of-00002" for i in range(2)),
    ]
    wanted = {
        "image/filename": "byte", "image/encoded": "byte", "image/class/label": "int", "image/class/synset": "byte",
        "image/height": "int", "image/width": "int", "image/channels": "int", "image/format": "byte",
        "image/colorspace": "byte", "image/class/text": "byte",
    }  # fmt: skip
    found = {}
    for i in range(4):
        for each in reader.tfrecord_loader(str(root / f"TFRecords/train-{i:05d}-of-00004"), None, wanted):
            found[bytes(each["image/filename"]).decode()] = each
    assert sorted(found) == sorted(path.name for path in root.glob("train/*/*"))
    for label, name in enumerate(CLASSES, 1):
        each = found[f"{name}_3.JPEG"]
        assert bytes(each["image/encoded"]) == (root / "train" / name / f"{name}_3.JPEG").read_bytes()
        assert (each["image/class/label"][0], bytes(each["image/class/synset"]).decode()) == (label, name)
        assert [int(each[f"image/{key}"][0]) for key in ("height", "width", "channels")] == [20, 30, 3]
        assert (bytes(each["image/format"]), bytes(each["image/colorspace"])) == (b"JPEG", b"RGB")


def test_training_reads_what_is_in_the_folders(root: Path) -> None:
    converted(root)
    from_folders = find_data(Settings(image_size=16, num_classes=3), root)
    from_shards = find_data(Settings(image_size=16, num_classes=3), root / "TFRecords")
    assert (len(from_shards.train), len(from_shards.valid), from_shards.classes) == (15, 6, 3)
    assert "4 TFRecord shards" in from_shards.source

    def bag(data: object) -> list[tuple[int, bytes]]:
        return sorted((label, image.numpy().tobytes()) for image, label in map(data.valid.__getitem__, range(6)))

    assert bag(from_folders) == bag(from_shards)


def test_shards_of_the_originals_conversion_have_a_thousand_classes(root: Path) -> None:
    conversion = converted(root)
    (conversion.out / "shards.json").unlink()
    assert find_data(Settings(num_classes=1000), conversion.out).classes == 1000


def test_what_is_there_is_not_written_again(root: Path) -> None:
    conversion = converted(root)
    lost, kept = conversion.path("train", 1), conversion.path("train", 2)
    before = lost.read_bytes(), kept.stat().st_mtime_ns
    lost.unlink()
    told: list[tuple[int, int]] = []
    assert imagenet_shards.convert(conversion, 2, lambda *each: told.append(each)) == 1
    assert (lost.read_bytes(), kept.stat().st_mtime_ns) == before
    assert told == [(6, 4)]
    with pytest.raises(InvalidArgument, match="has shards of other images, or in another number"):
        converted(root, shards=3)


def test_pictures_that_are_no_jpeg_of_grey_or_rgb_are_encoded_anew(root: Path) -> None:
    """ImageNet has a PNG file called .JPEG, and some pictures in CMYK."""
    folder = root / "train" / CLASSES[0]
    with Image.open(folder / f"{CLASSES[0]}_0.JPEG") as image:
        image.load()
    image.save(folder / f"{CLASSES[0]}_0.JPEG", "PNG")
    image.convert("CMYK").save(folder / f"{CLASSES[0]}_1.JPEG", "JPEG")
    conversion = converted(root, shards=1)
    path = conversion.path("train", 0)
    for place in tfrecord.places(path):
        (encoded,) = tfrecord.decode_example(tfrecord.read(path, place))["image/encoded"]
        with Image.open(io.BytesIO(encoded)) as found:
            assert (found.format, found.mode) == ("JPEG", "RGB")


def test_a_damaged_picture_stops_the_conversion_and_leaves_no_half_shard(root: Path) -> None:
    path = root / "train" / CLASSES[1] / f"{CLASSES[1]}_0.JPEG"
    path.write_bytes(path.read_bytes()[:200])
    conversion = imagenet_shards.plan(root, None, 1, 1)
    with pytest.raises(InvalidArgument, match=f"{path} cannot be decoded"):
        imagenet_shards.convert(conversion)
    assert not conversion.path("train", 0).exists()
    assert not list(conversion.out.glob(".tmp-*"))


def test_damage_is_told_with_file_and_byte(root: Path) -> None:
    conversion = converted(root, shards=1)
    path = conversion.path("train", 0)
    place = list(tfrecord.places(path))[7]
    content = bytearray(path.read_bytes())
    content[place.offset + 100] ^= 0x10
    path.write_bytes(content)
    data = find_data(Settings(image_size=8, num_classes=3), conversion.out)
    with pytest.raises(InvalidArgument, match=rf"^{path} is damaged: .* record at byte {place.offset} is wrong"):
        data.train[7]
    assert data.train[6][0].shape == (3, 8, 8)
    path.write_bytes(content[:-3])
    with pytest.raises(InvalidArgument, match=rf"{path} ends within the record"):
        find_data(Settings(num_classes=3), conversion.out)


@pytest.mark.parametrize(
    ("example", "said"),
    [
        ({"image/encoded": [b"x"]}, "has no picture with a class"),
        ({"image/encoded": [b"x"], "image/class/label": [4]}, "has the class 4, of 1 to 3"),
        ({"image/encoded": [b"x"], "image/class/label": [0]}, "has the class 0"),
        ({"image/encoded": [b"no picture"], "image/class/label": [1]}, "cannot be decoded"),
    ],
)
def test_a_record_that_is_no_picture_is_named(tmp_path: Path, example: tfrecord.Example, said: str) -> None:
    path = tmp_path / "train-00000-of-00001"
    (tmp_path / "shards.json").write_text(json.dumps({"classes": list(CLASSES)}))
    with open(path, "wb") as file:
        tfrecord.write(file, tfrecord.encode_example(example))
    with pytest.raises(InvalidArgument, match=rf"{path}: the record at byte 0 .*{said}"):
        imagenet_shards.ShardedImages([path], lambda image: image)[0]


def test_missing_shards_are_named(root: Path) -> None:
    conversion = converted(root)
    conversion.path("train", 2).unlink()
    with pytest.raises(InvalidArgument, match=r"train-00002-of-00004 is missing, of 4 shards 1 are"):
        find_data(Settings(num_classes=3), conversion.out)
    (conversion.out / "train-00000-of-00007").touch()
    with pytest.raises(InvalidArgument, match="shards of two conversions: of 00004 and of 00007"):
        imagenet_shards.find(conversion.out)


def test_folders_that_cannot_be_converted(root: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="16 shards for 15 images"):
        imagenet_shards.plan(root, None, 16, 1)
    (root / "val" / "n02").mkdir()
    with pytest.raises(InvalidArgument, match="n02 is a class of one part"):
        imagenet_shards.plan(root, None, 1, 1)
    (root / "train" / "n02").mkdir()
    with pytest.raises(InvalidArgument, match="train/n02 has no images"):
        imagenet_shards.plan(root, None, 1, 1)
    (root / "train" / "n02").rmdir()
    (root / "val").rename(root / "elsewhere")
    with pytest.raises(InvalidArgument, match="has no folder val"):
        imagenet_shards.plan(root, None, 1, 1)
