# SPDX-License-Identifier: MIT
"""What decides a run's numbers from outside of its code."""

import os
import sys
import types

import pytest
import torch

from dnnsuite._runs.identity import check_same, identity_of
from dnnsuite._runs.surroundings import files_named
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


def test_files_variables_and_settings_of_torch_that_decide_the_numbers_are_compared(tmp_path, monkeypatch):
    """What a run reads from outside of its code: none of it was compared, so that old and new numbers were mixed."""
    source = SURROUNDED.replace("DATA", str(tmp_path / "data.bin"))

    def told():
        module = types.ModuleType("mine")
        module.__file__ = "/home/user/mine.py"
        monkeypatch.setitem(sys.modules, "mine", module)
        exec(compile(source, "/home/user/mine.py", "exec"), module.__dict__)
        return identity_of(module.given)

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
