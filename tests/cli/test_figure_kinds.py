# SPDX-License-Identifier: MIT
import importlib
from pathlib import Path

import pytest

from dnnsuite.cli.plot import KINDS, draw, kind_for
from dnnsuite.errors import InvalidArgument
from dnnsuite.plots import Request


def test_every_kind_has_its_function() -> None:
    for kind, (path, _) in KINDS.items():
        module, _, function = path.partition(":")
        assert callable(getattr(importlib.import_module(module), function)), kind


def test_the_kind_is_that_of_the_results_unless_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "other", ("builtins:repr", "other.csv"))
    assert kind_for(None, [tmp_path]) == "throughput"
    (tmp_path / "other.csv").touch()
    assert kind_for(None, [tmp_path]) == "other"
    assert kind_for("throughput", [tmp_path]) == "throughput"
    assert str(tmp_path) in str(draw("other", Request((tmp_path,))))


def test_an_unknown_kind_lists_what_is_accepted() -> None:
    with pytest.raises(InvalidArgument, match="--kind pie: accepted: throughput"):
        kind_for("pie", [Path()])


def test_a_sweep_is_drawn_by_its_directory_and_reported_on_by_its_tables(tmp_path, capsys):
    from command_line import status
    from small_sweep import run

    run(tmp_path / "search", "random", epochs=1, metric="acc")
    assert status("plot", str(tmp_path / "search")) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "search/sweep.png")]
    assert status("plot", str(tmp_path), "--save", str(tmp_path / "all.svg"), "--metric", "lr") == 0
    assert (tmp_path / "all.svg").read_text().endswith("</svg>\n")
    assert status("plot", str(tmp_path / "search"), "--metric", "dropot") == 2
    assert "'dropot' is not a hyper-parameter that varies (did you mean 'dropout'?)" in capsys.readouterr().err
    (tmp_path / "search/trials.csv").unlink()
    assert status("plot", str(tmp_path / "search")) == 2
    assert "has not ended" in capsys.readouterr().err
    assert status("report", str(tmp_path / "search")) == 2
    assert "epochs.csv" in capsys.readouterr().err
