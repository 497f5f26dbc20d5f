# SPDX-License-Identifier: MIT
"""`dnnsuite data`: data sets are put into the form that training runs read."""

import json
from pathlib import Path

import pytest
from PIL import Image

from command_line import status


def test_valprep_says_what_it_would_do_and_then_does_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "val"
    folder.mkdir()
    (folder / "a.jpg").touch()
    (tmp_path / "list.txt").write_text("a.jpg n01440764\n")
    order = ["data", "valprep", str(folder), "--labels", str(tmp_path / "list.txt")]
    assert status(*order, "--dry-run") == 0
    said = capsys.readouterr().out
    assert f"{folder / 'a.jpg'} -> {folder / 'n01440764' / 'a.jpg'}" in said
    assert (folder / "a.jpg").is_file()
    assert status(*order, "--json") == 0
    assert json.loads(capsys.readouterr().out)["moved"] == 1
    assert (folder / "n01440764" / "a.jpg").is_file()


def test_valprep_without_a_list_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("data", "valprep", str(tmp_path)) == 2
    assert capsys.readouterr().err.startswith("dnnsuite: error: no list of labels in")


def test_tfrecord_writes_shards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for part in ("train", "val"):
        (tmp_path / part / "n01440764").mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / part / "n01440764" / "a.jpg")
    order = ["data", "tfrecord", str(tmp_path), "--shards", "1", "--validation-shards", "1"]
    assert status(*order) == 0
    assert "2 shards, 2 of them written now; 1 images for train" in capsys.readouterr().out
    assert (tmp_path / "TFRecords" / "train-00000-of-00001").is_file()
    assert status(*order, "--json") == 0
    assert json.loads(capsys.readouterr().out)["written"] == 0
    assert status(*order, "--workers", "0") == 2


def test_sets_are_listed_and_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = ["--dataroot", str(tmp_path)]
    assert status("data", "where", "ml-20m", *root) == 1
    said = capsys.readouterr().out
    assert "MovieLens 20M: not below" in said
    assert "ml-20m.zip   MD5 cd245b17a1ae2cc31bb14903e1204af3" in said
    assert status("data", "prepare", "ml-20m", "--fake", "30", *root) == 0
    assert capsys.readouterr().out == f"{tmp_path}/ml-20m\n"
    assert status("data", "where", "ml-20m", *root) == 0
    capsys.readouterr()
    assert status("data", "list", *root) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if " here " in line] == ["ml-20m"]
    assert status("data", "list", "--json", *root) == 0
    assert json.loads(capsys.readouterr().out)["ml-20m"]["found"] == f"{tmp_path}/ml-20m"
    assert status("data", "list", "--dataroot", str(tmp_path / "dta")) == 0  # a folder mistyped
    assert capsys.readouterr().out.startswith(f"below {tmp_path}/dta, which does not exist yet")


def test_nothing_is_downloaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("data", "prepare", "coco", "--dataroot", str(tmp_path)) == 2
    assert "fetch train2017.zip and annotations_trainval2017.zip (19 GB)" in capsys.readouterr().err
    assert status("data", "prepare", "cocoa", "--dataroot", str(tmp_path)) == 2
    assert "did you mean 'coco'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
