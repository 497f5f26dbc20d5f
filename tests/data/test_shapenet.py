# SPDX-License-Identifier: MIT
"""ShapeNet part, from folders laid out as its authors do, with made-up shapes."""

import json

import numpy as np
import pytest
import torch

from dnnsuite import jobs
from dnnsuite.data.point_clouds import SHAPENET_FOLDERS, load_shapes, shape_batches
from dnnsuite.errors import InvalidArgument, Unavailable

FOLDERS = {"Table": "04379243", "Chair": "03001627", "Cap": "02954340"}


@pytest.fixture
def root(tmp_path):
    """Four shapes of each category for training and two for testing; Chair number k has 10 + k points."""
    (tmp_path / "synsetoffset2category.txt").write_text("".join(f"{n}\t{f}\n" for n, f in FOLDERS.items()))
    (tmp_path / "train_test_split").mkdir()
    random = np.random.default_rng(0)
    for split, shapes in (("train", range(4)), ("test", range(4, 6)), ("val", range(6, 7))):
        listed = [f"shape_data/{folder}/{i:04x}" for i in shapes for folder in FOLDERS.values()]
        path = tmp_path / f"train_test_split/shuffled_{split}_file_list.json"
        path.write_text(json.dumps(listed))
        for entry in listed:
            _, folder, name = entry.split("/")
            for room, end, table, form in (
                ("points", ".pts", random.normal(size=(10 + int(name, 16), 3)) + 7, "%.6f"),
                ("points_label", ".seg", 1 + np.arange(10 + int(name, 16)) % 4, "%d"),
            ):
                (tmp_path / folder / room).mkdir(parents=True, exist_ok=True)
                np.savetxt(tmp_path / folder / room / f"{name}{end}", table, fmt=form)
    return tmp_path


def test_categories_are_numbered_in_the_order_of_their_names(root):
    shapes = load_shapes("auto", root)
    assert len(shapes.points) == 12
    by_folder = {path.parent.parent.name: label for path, label in zip(shapes.points, shapes.labels, strict=True)}
    assert by_folder == {FOLDERS["Cap"]: 0, FOLDERS["Chair"]: 1, FOLDERS["Table"]: 2}
    assert shapes.origin.source == "ShapeNet part, train, 3 categories"
    assert len(load_shapes("real", root, "test").points) == 6


def test_the_folder_in_the_archive_is_found(root, tmp_path):
    (tmp_path / "above").mkdir()
    (tmp_path / "above" / SHAPENET_FOLDERS[1]).symlink_to(root)
    assert len(load_shapes("auto", tmp_path / "above", "val").points) == 3


def test_clouds_are_drawn_from_their_shapes(root):
    """For testing neither turned nor shaken: each is one of the shape's points, centred and scaled."""
    shapes = load_shapes("auto", root, "test", "Chair")
    points, parts = shape_batches(shapes, 64, batch_size=2, seed=1, of_parts=4).batch(0)
    assert points.shape == (2, 3, 64)
    assert parts.shape == (2, 64)
    assert torch.allclose(points.mean(2), torch.zeros(2, 3), atol=1e-5)
    assert torch.allclose(points.norm(dim=1).amax(1), torch.ones(2))
    files = {10 + int(path.stem, 16): np.loadtxt(path) for path in shapes.points}
    for cloud, own in zip(points, parts, strict=True):
        distinct = {tuple(row) for row in cloud.T.tolist()}
        assert len(distinct) <= max(files)
        same = (cloud.T[:, None] - cloud.T[None]).norm(dim=2) < 1e-6  # one point of the shape, so one part
        assert torch.equal(own[:, None].expand(64, 64)[same], own[None].expand(64, 64)[same])


def test_training_turns_and_shakes_and_follows_the_seed(root):
    shapes = load_shapes("auto", root)
    first, again, other = (shape_batches(shapes, 32, batch_size=12, seed=seed).batch(0) for seed in (1, 1, 2))
    assert torch.equal(first[0], again[0])
    assert not torch.equal(first[0], other[0])
    assert sorted(first[1].tolist()) == [0] * 4 + [1] * 4 + [2] * 4
    assert 0.9 < float(first[0].norm(dim=1).max()) < 1.2
    assert len({tuple(row) for row in first[0][0].T.tolist()}) == 32  # shaken: no two points are one


@pytest.mark.parametrize(("name", "labels"), [("pointnet_cls", (2,)), ("pointnet_seg", (2, 16))])
def test_the_jobs_train_on_it(name, labels, root):
    options = {"points": 16, "width": 16}
    kind = jobs.get(name, swept=True)
    job = kind(jobs.JobConfig(B=2, batch_size=2, threads=1, dataroot=str(root), options=options))
    try:
        job.setup()
        assert job.batch(0)[1].shape == labels
        job.step()
        assert all(np.isfinite(job.losses()))
        assert "ShapeNet part, train" in job.provenance()["data"]["source"]
        assert len(job.held_out_metric()) == 2
    finally:
        job.close()


def test_nobody_said_where(tmp_path):
    assert load_shapes("auto", None) is None
    assert load_shapes("synthetic", tmp_path) is None
    with pytest.raises(Unavailable, match="--dataroot DIR"):
        load_shapes("real", None)
    with pytest.raises(InvalidArgument, match=r"has no ShapeNet part; looked for synsetoffset2category\.txt"):
        load_shapes("auto", tmp_path)


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("synsetoffset2category.txt", "Chair\n", "synsetoffset2category.txt should have lines"),
        ("train_test_split/shuffled_train_file_list.json", "[", "list.json cannot be read"),
        ("train_test_split/shuffled_train_file_list.json", "[]", "lists no shape of Chair"),
        ("03001627/points/0000.pts", "1 2\n", "0000.pts should have lines of 3 finite numbers"),
        ("03001627/points/0000.pts", "1 2 x\n", "0000.pts cannot be read"),
        ("03001627/points/0000.pts", "", "0000.pts should have lines"),
        ("03001627/points_label/0000.seg", "1\n", "has 1 parts for 10 points of 0000.pts"),
        ("03001627/points_label/0000.seg", "5\n" * 10, "has parts 5 to 5, not 1 to 4"),
    ],
)
def test_a_damaged_file_is_named(path, text, message, root, recwarn):
    (root / path).write_text(text)
    with pytest.raises(InvalidArgument, match=message):
        shape_batches(load_shapes("auto", root, category="Chair"), 8, batch_size=4, seed=0, of_parts=4).batch(0)


def test_a_missing_file_is_named_before_anything_is_read(root):
    (root / FOLDERS["Chair"] / "points/0002.pts").unlink()
    with pytest.raises(InvalidArgument, match=r"1 files that .* lists are missing, first .*0002.pts"):
        load_shapes("auto", root)


def test_a_category_that_is_none(root):
    with pytest.raises(InvalidArgument, match=r"no category 'Chairs'.*did you mean 'Chair'"):
        load_shapes("auto", root, category="Chairs")
