# SPDX-License-Identifier: MIT
"""Sweeps over the number of units that are left unfused."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import tiny_workloads
from dnnsuite.errors import InvalidArgument
from dnnsuite.plots import Request
from dnnsuite.workflow import modes, run
from dnnsuite.workflow.modes import (
    draw_unfused,
    is_partial,
    number_of,
    options_of,
    unfused_names,
    unfused_table,
    units_of,
)
from dnnsuite.workflow.settings import resolve

TINY = {"plugins": ["tiny_workloads"], "device": "cpu", "threads": 1, "precisions": ["fp32"]}


def test_names_of_modes():
    assert [number_of(name) for name in ("hfta-0", "hfta-10", "hfta", "hfta-x", "hfta-")] == [0, 10, None, None, None]
    assert is_partial("hfta-3")
    mode = modes.get("hfta-3")
    assert (mode.name, mode.width(7), mode.processes(7)) == ("hfta-3", 7, 1)
    found = resolve("blobs", {**TINY, "modes": ["hfta-10,hfta-2", "serial"], "plan": ["3"]})
    assert found.modes == ["serial", "hfta-2", "hfta-10"]
    with pytest.raises(InvalidArgument, match="unknown mode 'hfta-x'"):
        resolve("blobs", {**TINY, "modes": ["hfta-x"]})


def test_units_are_those_of_hfta_for_its_resnet(monkeypatch):
    monkeypatch.setattr("dnnsuite.jobs.get", lambda name, swept=False: tiny_workloads.Right)
    units = [unit[0] for unit in units_of("blobs")]
    assert units == ["0", "5"]
    monkeypatch.undo()
    units = units_of("resnet")
    assert [unit[0] for unit in units[:3]] == ["layer1.0", "layer1.1", "layer2.0"]
    assert [unit[0] for unit in units[7:]] == ["layer4.1", "fc", "conv1"]
    assert len(units) == 10
    with pytest.raises(InvalidArgument, match="declares no units"):
        units_of("bert")


def test_modules_of_a_mode():
    assert unfused_names("blobs", "hfta") == unfused_names("blobs", "hfta-0") == []
    assert unfused_names("blobs", "hfta-1") == ["0", "1"]
    assert unfused_names("blobs", "hfta-2") == ["0", "1", "5"]
    with pytest.raises(InvalidArgument, match="mode hfta-3: the model of blobs has 2 units"):
        unfused_names("blobs", "hfta-3")


def test_units_of_a_users_own():
    own = [["5"], ["0", "1"]]
    assert unfused_names("blobs", "hfta-1", own) == ["5"]
    assert unfused_names("bert", "hfta-2", own) == ["5", "0", "1"]
    _, options = options_of("bert_partially_fused", {"units": ["layers.0", "layers.1"]})
    assert options["modes"] == ["serial", "hfta-0", "hfta-1", "hfta-2"]
    assert resolve("blobs", {**TINY, "units": ["5", "0, 1"]}).units == own


def test_options():
    assert options_of("bert", {"plan": ["1,2"]}) == ("bert", {"plan": ["1,2"]})
    job, options = options_of("blobs_partially_fused", {"preset": "paper", "epochs": None})
    assert job == "blobs"
    assert options == {"preset": "paper", "plan": ["30"], "modes": ["serial", "hfta-0", "hfta-1", "hfta-2"]}
    assert options_of("blobs_partially_fused", {"seed": 3}, defaults=False) == ("blobs", {"seed": 3})
    for wrong, message in (({"plan": ["1,2"]}, "one number of models"), ({"max_B": 3}, "--max-B has no meaning")):
        with pytest.raises(InvalidArgument, match=message):
            options_of("blobs_partially_fused", wrong)


def test_table():
    rows = [
        ("serial", "fp32", 1, 1.0, 0.9, 1.1),
        ("hfta-10", "fp32", 4, 1.1, 1.0, 1.2),
        ("hfta-2", "fp32", 4, 1.5, 1.4, 1.6),
        ("hfta-2", "amp", 4, 2.5, 2.4, 2.6),
    ]
    summary = pd.DataFrame(rows, columns=["mode", "precision", "B", "normalized", "low", "high"])
    table = unfused_table(summary)
    assert table.index.name == "serial num"
    assert table.index.tolist() == [2, 10]
    assert [name for name in table if name.count(":") == 1] == ["serial:fp32", "hfta:fp32", "hfta:amp"]
    assert table["hfta:fp32"].tolist() == [1.5, 1.1]
    assert table["hfta:fp32:low"].tolist() == [1.4, 1.0]
    assert np.isnan(table["hfta:amp"][10])
    assert unfused_table(summary[summary["mode"] == "serial"]) is None


def test_a_sweep(monkeypatch, tmp_path):
    folder = str(Path(tiny_workloads.__file__).parent)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", folder, prepend=":")
    options = {**TINY, "plan": ["3"], "repeats": 1, "modes": ["serial", "hfta-0", "hfta-2"]}
    report = run("blobs_partially_fused", tmp_path / "out", quiet=True, **options)
    assert report.ok, report.problems
    names = [path.name for path in report.files]
    assert names == ["throughputs.csv", "throughputs.png", "cpu-blobs.csv", "results.csv"]
    table = pd.read_csv(report.files[0], index_col="serial num")
    assert table.index.tolist() == [0, 2]
    assert table["serial:fp32"].tolist() == [1.0, 1.0]
    assert (table["hfta:fp32"] > 0).all()
    (check,) = report.state["equality"].values()
    assert (check["passed"], check["models"]) == (True, 3)
    records = [json.loads(path.read_text()) for path in (tmp_path / "out/runs").glob("*hfta-2*/run.json")]
    assert [record["details"]["configs"][0]["unfused"] for record in records] == [["0", "1", "5"]]
    drawn = draw_unfused(Request((tmp_path / "out",), save=tmp_path / "twice"))
    assert drawn.files[0].read_bytes() == report.files[0].read_bytes()
    again = run("blobs_partially_fused", tmp_path / "out", resume=True, quiet=True)
    assert again.ok


def test_a_plugin_is_imported_before_its_units_are_asked_for(monkeypatch, tmp_path):
    declaration = (
        "import dataclasses, tiny_workloads\nfrom dnnsuite.jobs import declare\n"
        "declare(dataclasses.replace(tiny_workloads.workload('late_blobs'), units=[['5']]))\n"
    )
    (tmp_path / "late_plugin.py").write_text(declaration)
    monkeypatch.chdir(tmp_path)
    _, options = options_of("late_blobs_partially_fused", {"plugins": ["late_plugin"]})
    assert options["modes"] == ["serial", "hfta-0", "hfta-1"]
    assert "repeats" not in options
