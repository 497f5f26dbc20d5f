# SPDX-License-Identifier: MIT
"""What decides a run's numbers from outside of its code."""

import os
import shutil
import sys
import types

import numpy as np
import pytest
import torch

from dnnsuite._runs.folder import opened
from dnnsuite._runs.identity import check_same, identity_of
from dnnsuite._runs.surroundings import changed_files, files_named, settings_of_torch
from dnnsuite.errors import InvalidArgument

SURROUNDED = """
import os
from pathlib import Path
class Data:
    def __init__(self):
        self.path = "DATA"
    def __getitem__(self, i):
        return Path(self.path).read_bytes()[i] * float(os.environ.get("MY_SCALE", "1")) * float(os.getenv("OTHER", "1"))
given = {"train": Data()}
"""


def told_of_script(source, monkeypatch):
    """Identity of what a user's module with this source calls `given`."""
    module = types.ModuleType("mine")
    module.__file__ = "/home/user/mine.py"
    monkeypatch.setitem(sys.modules, "mine", module)
    exec(compile(source, "/home/user/mine.py", "exec"), module.__dict__)
    return identity_of(module.given)


def test_files_variables_and_settings_of_torch_that_decide_the_numbers_are_compared(tmp_path, monkeypatch):
    """What a run reads from outside of its code: none of it was compared, so that old and new numbers were mixed."""
    source = SURROUNDED.replace("DATA", str(tmp_path / "data.bin"))

    def told():
        return told_of_script(source, monkeypatch)

    (tmp_path / "data.bin").write_bytes(b"0123")
    first = told().to_dict()
    assert not told().changes(first)
    (tmp_path / "data.bin").write_bytes(b"0124")  # of the same size
    assert told().changes(first) == {"files": f"files: other content in {tmp_path / 'data.bin'}"}
    with pytest.raises(InvalidArgument, match=r"--allow-changed files"):
        check_same(tmp_path, first, told())
    assert list(check_same(tmp_path, first, told(), ["files"])) == ["files"]
    (tmp_path / "data.bin").unlink()
    assert not told().changes(first)  # whoever reads it tells of it
    again = told().to_dict()
    (tmp_path / "data.bin").write_bytes(b"made by the run itself")
    assert not told().changes(again)
    monkeypatch.setenv("UNREAD", "3")
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("OTHER", str(tmp_path))  # a place
    assert not told().changes(again)
    monkeypatch.delenv("OTHER")
    for name in ("MY_SCALE", "OTHER"):
        with monkeypatch.context() as own:
            own.setenv(name, "2")
            assert told().changes(again) == {"train": f"train: variable {name} is new"}
    code = {"loss": lambda: torch.ones(1)}
    first = identity_of(code).to_dict()
    torch.set_default_dtype(torch.float64)
    try:
        changes = identity_of(code).changes(first)
    finally:
        torch.set_default_dtype(torch.float32)
    assert changes == {"torch_settings": "torch_settings (default dtype) is new"}


def test_what_is_no_file_of_data_is_none(tmp_path):
    os.mkfifo(tmp_path / "pipe.bin")
    (tmp_path / "folder.d").mkdir()
    (tmp_path / "data.bin").write_bytes(b"12")
    names = [str(tmp_path / name) for name in ("pipe.bin", "folder.d", "absent.bin", "data.bin")]
    assert list(files_named([*names, "nul\0.bin"])) == [names[-1]]


def test_files_count_in_folders_that_are_named_and_so_do_parts_of_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("sub/deep/conf", "listed/a.txt", "plain", "run.cfg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    names = ["sub", "deep", "conf", "listed", "plain"]
    assert list(files_named(names)) == ["plain", "sub/deep/conf"]
    assert list(files_named(names, {"glob", "save"})) == ["plain", "sub/deep/conf", "listed/a.txt"]
    monkeypatch.setenv("APP_SCALE", "1")
    monkeypatch.setenv("APP_MODE", "mse/mean")
    monkeypatch.setenv("APP_FILE", str(tmp_path / "run.cfg"))
    monkeypatch.setenv("APP_OUT", str(tmp_path))
    code = {"loss": lambda name: os.environ["APP_" + name]}
    first = identity_of(code).to_dict()
    assert "variable APP_MODE" in first["parts"]["loss"]
    assert "variable APP_OUT" not in first["parts"]["loss"]
    (tmp_path / "run.cfg").write_text("2")
    assert identity_of(code).changes(first).keys() == {"files"}
    monkeypatch.setenv("APP_SCALE", "2")
    assert identity_of(code).changes(first)["loss"] == "loss: variable APP_SCALE is '2', was '1'"


LISTED = """
import os
class Data:
    def __init__(self):
        self.path = "FOLDER"
    def __iter__(self):
        return (open(os.path.join(self.path, name)).read() for name in os.listdir(self.path))
given = {"train": Data()}
"""


@pytest.mark.parametrize("way", ["os.listdir(self.path)", "next(os.walk(self.path))[2]"])
def test_a_folder_that_code_lists_has_the_same_files(tmp_path, monkeypatch, way):
    """A dataset that looks into its folder when it is read: a file more or less was another data set without a word."""
    data = tmp_path / "data"
    (data / "deep").mkdir(parents=True)
    (data / "a.txt").write_text("1")
    (data / "deep" / "b.txt").write_text("2")

    source = LISTED.replace("FOLDER", str(data)).replace("os.listdir(self.path)", way)

    def told():
        return told_of_script(source, monkeypatch)

    first = told().to_dict()
    with opened(data / "out", "sweep.json", resume=False) as run:
        run.save()
        (data / ".hidden").write_text("of a file system")
        assert not told().changes(first)
    for name in ("c.txt", "deep/c.txt"):
        (data / name).write_text("3")
        assert told().changes(first) == {"files": f"files: other content in {data}{os.sep}"}
        (data / name).unlink()
    assert not told().changes(first)
    (data / "deep" / "b.txt").unlink()
    assert told().changes(first).keys() == {"files"}
    shutil.rmtree(data)
    assert told().changes(first) == {"files": f"files: other content in {data}{os.sep}"}


def test_a_file_that_code_may_have_written_is_no_change(tmp_path):
    (tmp_path / "a.txt").write_text("1")
    names = [str(tmp_path)]
    first = files_named(names, {"listdir", "save"})
    (tmp_path / "b.txt").write_text("1")
    assert changed_files(first, files_named(names, {"listdir", "save"})) == []
    (tmp_path / "a.txt").write_text("2")
    assert changed_files(first, files_named(names, {"listdir", "save"})) == [str(tmp_path / "a.txt")]


def test_settings_of_torch_that_were_set_in_two_ways_are_told():
    assert settings_of_torch() == {}
    with torch.autocast("cpu", torch.bfloat16), torch.device("meta"):
        assert settings_of_torch() == {"default device": "meta", "autocast on cpu": "torch.bfloat16"}
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    try:
        assert settings_of_torch()["mkldnn.matmul.fp32_precision"] == "bf16"
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = "none"


def test_settings_beside_torchs_precision_are_told(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    with np.errstate(over="raise"):
        told = settings_of_torch()
    assert told.keys() == {"cudnn.benchmark", "errors of NumPy"}
    assert "'over': 'raise'" in told["errors of NumPy"]
