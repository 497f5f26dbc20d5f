# SPDX-License-Identifier: MIT
import json

import pytest

from dnnsuite import _tune as tune


def test_remembers_between_processes(tmp_path):
    tune.TuningTable(tmp_path / "tune.json").put("k", 3)
    table = tune.TuningTable(tmp_path / "tune.json")
    assert table.get("k") == 3
    assert table.get("other") is None


def test_keeps_what_other_processes_wrote(tmp_path):
    first, second = (tune.TuningTable(tmp_path / "tune.json") for _ in range(2))
    first.put("a", 1)
    second.put("b", 2)
    assert json.loads((tmp_path / "tune.json").read_text()) == {"a": 1, "b": 2}


@pytest.mark.parametrize("content", ["", "{", "[]", "\x00"])
def test_a_broken_file_costs_a_measurement_only(tmp_path, content):
    (tmp_path / "tune.json").write_text(content)
    table = tune.TuningTable(tmp_path / "tune.json")
    assert table.get("k") is None
    table.put("k", 1)
    assert tune.TuningTable(tmp_path / "tune.json").get("k") == 1


def test_a_folder_that_cannot_be_written_costs_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    table = tune.TuningTable(tmp_path / "file" / "tune.json")
    table.put("k", 1)
    assert table.get("k") == 1
