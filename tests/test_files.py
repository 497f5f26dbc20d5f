# SPDX-License-Identifier: MIT
import json
import math
import os
from pathlib import Path

import pytest

from dnnsuite import _files
from dnnsuite.errors import Error


def test_a_file_is_whole_or_absent(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    _files.write_text(path, "first")
    with pytest.raises(ZeroDivisionError), _files.replacing(path) as temporary:
        temporary.write_text("half" * (1 // 0))
    assert path.read_text() == "first"
    assert os.listdir(tmp_path) == ["x.txt"]


def test_what_json_has_not_becomes_null(tmp_path: Path) -> None:
    _files.write_json(tmp_path / "x.json", {"a": [math.nan, 1.5], "b": (math.inf,), "c": Path("p")})
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": [None, 1.5], "b": [None], "c": "p"}


def test_errors_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(_files.OutputError, match=r"cannot write .*absent.x.txt: No such file"):
        _files.write_text(tmp_path / "absent" / "x.txt", "")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(Error, match=r"bad\.json"):
        _files.read_json(tmp_path / "bad.json")


def test_the_end_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("first\nlast\n")
    assert _files.read_tail(tmp_path / "x", 5) == "last\n"
    assert _files.read_tail(tmp_path / "absent") == ""
