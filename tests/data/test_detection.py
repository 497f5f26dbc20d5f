# SPDX-License-Identifier: MIT
"""COCO's files, whole and damaged, and the rectangles that stand in."""

import json
import sys

import pytest
import torch
from PIL import Image

from dnnsuite.data import detection
from dnnsuite.errors import InvalidArgument, Unavailable


def annotation(**fields):
    return {"id": 1, "image_id": 5, "category_id": 18, "bbox": [40, 30, 100, 80], "area": 8000, "iscrowd": 0, **fields}


def content(annotations):
    return {
        "info": {},
        "licenses": [],
        "images": [
            {"id": 5, "file_name": "000000000005.jpg", "width": 200, "height": 160},
            {"id": 9, "file_name": "000000000009.jpg", "width": 80, "height": 90},
        ],
        "annotations": annotations,
        "categories": [{"id": 3, "name": "car"}, {"id": 18, "name": "dog"}],
    }


@pytest.fixture
def coco(tmp_path):
    folder = tmp_path / "coco"
    (folder / "annotations").mkdir(parents=True)
    (folder / "train2017").mkdir()
    image = Image.new("L", (200, 160), 128)
    image.save(folder / "train2017" / "000000000005.jpg")

    def write(what):
        text = what if isinstance(what, str) else json.dumps(what)
        (folder / "annotations" / "instances_train2017.json").write_text(text)
        return folder

    write(content([annotation(), annotation(id=2, category_id=3, bbox=[0, 0, 50.5, 160])]))
    return folder, write


def plain(boxes, labels):
    return boxes, labels


def test_coco(coco, capsys):
    folder, _ = coco
    assert detection.find("auto", folder.parent) == detection.find("real", folder) == folder
    data = detection.Coco(folder, plain)
    assert len(data) == data.origin.count == 1  # an image without boxes is left out
    assert data.origin.source == "COCO 2017, train"
    torch.manual_seed(0)
    seen = set()
    for _ in range(30):
        image, boxes, labels = data[0]
        assert (image.shape, image.dtype) == ((3, 300, 300), torch.float32)
        assert len(boxes) == len(labels) <= 2
        assert (boxes >= 0).all()
        assert (boxes <= 1).all()
        assert (boxes[:, 2:] > boxes[:, :2]).all()
        seen |= {tuple(round(x, 3) for x in box) for box in boxes.tolist()}
        assert set(labels.tolist()) <= {1, 2}
    assert (0.2, 0.188, 0.7, 0.688) in seen  # the whole image, and the same in a mirror
    assert (0.3, 0.188, 0.8, 0.688) in seen
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ('{"images": [],\n "annotations": [}', r"instances_train2017\.json: not JSON \(.*line 2"),
        ("[]", "no object with lists images, annotations, categories"),
        (content([annotation(), annotation(bbox=[1, 2, 3])]), r"annotation number 1 has the box \[1, 2, 3\]"),
        (content([annotation(image_id=6)]), "annotation number 0 is of image 6, which is not in the file"),
        (content([annotation(category_id=1)]), "annotation number 0 is of category 1, which is not"),
        (content([4]), "annotation number 0 is not an object"),
        (content([]), "no image has a box"),
        ({"images": [{"id": 3}], "annotations": [], "categories": []}, "an image or a category without 'file_name'"),
        ({**content([]), "categories": [{"id": i} for i in range(81)]}, "81 categories, more than COCO's 80"),
    ],
)
def test_damaged(coco, what, message):
    folder, write = coco
    write(what)
    with pytest.raises(InvalidArgument, match=message):
        detection.Coco(folder, plain)


def test_a_missing_and_a_damaged_image(coco):
    folder, _ = coco
    data = detection.Coco(folder, plain)
    path = folder / "train2017" / "000000000005.jpg"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InvalidArgument, match=r"image 5 of .*instances_train2017"):
        data[0]
    path.unlink()
    with pytest.raises(InvalidArgument, match=r"image 5 of .*No such file"):
        data[0]


def test_without_coco(tmp_path, monkeypatch, coco):
    assert detection.find("auto", None) is detection.find("auto", tmp_path / "coco" / "train2017") is None
    with pytest.raises(
        Unavailable, match=r"COCO 2017 \(looked in annotations/instances_train2017\.json of no dataroot"
    ):
        detection.find("real", None)
    monkeypatch.setitem(sys.modules, "pycocotools", None)
    with pytest.raises(Unavailable, match=r"pip install 'dnnsuite\[jobs\]'"):
        detection.Coco(coco[0], plain)


def test_rectangles():
    images, labelled, origin = detection.rectangles(6, seed=1)
    assert images.shape == (6, 3, 300, 300)
    for boxes, labels in labelled:
        assert len(boxes) == len(labels) >= 1
        assert (boxes[:, 2:] > boxes[:, :2]).all()
        assert (boxes >= 0).all()
        assert (boxes <= 1).all()
        assert (labels >= 1).all()
        assert (labels <= 80).all()
    # Where the last of an image's rectangles is, its colour is; around an image's first pixel mostly none is.
    boxes, labels = labelled[0]
    left, top, right, bottom = (boxes[-1] * 300).int().tolist()
    assert images[0, :, top:bottom, left:right].std(dim=(1, 2)).mean() < images[0].std(dim=(1, 2)).mean()
    assert origin.count == 6
    assert torch.equal(images, detection.rectangles(6, seed=1)[0])
    many = detection.rectangles(60, seed=2)[1]
    assert sum(len(each.labels) for each in many) / 60 == pytest.approx(7.3, abs=1.2)
