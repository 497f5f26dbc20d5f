# SPDX-License-Identifier: MIT
import json

import pytest
import torch
from PIL import Image

from dnnsuite import jobs
from dnnsuite.data import import_torchvision
from dnnsuite.errors import InvalidArgument
from dnnsuite.models import multibox
from job_runs import make

SMALL = {"workers": 0, "images": 1}


@pytest.fixture
def coco(tmp_path):
    (tmp_path / "annotations").mkdir()
    (tmp_path / "train2017").mkdir()
    images = []
    for i in range(3):
        images.append({"id": i, "file_name": f"{i}.jpg", "width": 64, "height": 48})
        Image.new("RGB", (64, 48), (40 * i, 90, 200)).save(tmp_path / "train2017" / f"{i}.jpg")
    boxes = [
        {"id": i, "image_id": i, "category_id": 7, "bbox": [4, 4, 30, 30], "area": 900, "iscrowd": 0} for i in range(3)
    ]
    content = {"images": images, "annotations": boxes, "categories": [{"id": 7, "name": "thing"}]}
    (tmp_path / "annotations" / "instances_train2017.json").write_text(json.dumps(content))
    return tmp_path


def test_the_model_is_the_originals():
    def convolutions(*sizes):
        return sum(a * b * k * k + b for a, b, k in sizes)

    backbone = import_torchvision().models.resnet34()
    body = sum(p.numel() for p in backbone.parameters())
    without = sum(p.numel() for layer in (backbone.layer4, backbone.fc) for p in layer.parameters())
    extras = convolutions(
        (256, 256, 1),
        (256, 512, 3),
        (512, 256, 1),
        (256, 512, 3),
        (512, 128, 1),
        (128, 256, 3),
        (256, 128, 1),
        (128, 256, 3),
        (256, 128, 1),
        (128, 256, 3),
    )
    heads = convolutions(
        *(
            (channels, shapes * rows, 3)
            for rows in (4, 81)
            for channels, shapes in zip((256, 512, 512, 256, 256, 256), (4, 6, 6, 6, 4, 4), strict=True)
        )
    )
    with torch.device("meta"):
        model = jobs.get("ssd").workload.model({"weights": ""}, {})
    assert body - without == 8_170_304
    assert sum(p.numel() for p in model.parameters()) == body - without + extras + heads == 19_972_534


def test_a_step_by_hand():
    job = make("ssd", 1, **SMALL)
    start = [p.detach().clone() for p in job.model.parameters()]
    images, boxes, labels = job.batch(0)
    offsets, logits = job.model(images)
    expected = multibox.multibox_loss(offsets, logits, boxes, labels, multibox.default_boxes())
    grads = torch.autograd.grad(expected, list(job.model.parameters()))
    job.step()
    torch.testing.assert_close(job.last_loss, expected.detach(), rtol=1e-4, atol=1e-4)
    for p, before, grad in zip(job.model.parameters(), start, grads, strict=True):
        torch.testing.assert_close(p.detach(), before - 1e-3 * (grad + 5e-4 * before), rtol=1e-3, atol=1e-4)


def test_a_seed_gives_the_batches_and_the_weights():
    def begun(seed):
        job = make("ssd", 1, seed=seed, **SMALL)
        return [*job.batch(0), *job.model.parameters()]

    one, again, other = begun(5), begun(5), begun(6)
    assert all(map(torch.equal, one, again))
    assert not all(map(torch.equal, one, other))


@pytest.mark.parametrize("workers", [0, 1])
def test_it_reads_coco_and_close_ends_the_workers(coco, workers):
    import multiprocessing

    before = set(multiprocessing.active_children())
    job = make("ssd", 2, data="real", dataroot=str(coco), workers=workers)
    assert job.provenance()["data"]["source"] == "COCO 2017, train"
    assert len(set(multiprocessing.active_children()) - before) == workers
    images, boxes, labels = job.batch(0)
    assert images.shape == (2, 3, 300, 300)
    assert boxes.shape == (2, 8732, 4)
    assert set(labels.unique().tolist()) <= {0, 1}
    assert job.feed == "loader"
    job.close()
    assert set(multiprocessing.active_children()) <= before


def test_weights(tmp_path):
    path = tmp_path / "resnet34.pth"
    torch.save(import_torchvision().models.resnet34().state_dict(), path)
    job = make("ssd", 1, weights=str(path), **SMALL)
    assert torch.equal(job.model.backbone[0].weight, torch.load(path)["conv1.weight"])
    assert job.provenance()["model"]["weights"] == str(path)
    path.write_bytes(b"no weights")
    with pytest.raises(InvalidArgument, match=r"resnet34\.pth' cannot be read"):
        make("ssd", 1, weights=str(path), **SMALL)
    torch.save(torch.zeros(1), path)
    with pytest.raises(InvalidArgument, match="is not a file of parameters by name"):
        make("ssd", 1, weights=str(path), **SMALL)


def test_refused():
    with pytest.raises(InvalidArgument, match="workers -1 is negative"):
        make("ssd", 1, workers=-1)
