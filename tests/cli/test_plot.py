# SPDX-License-Identifier: MIT
import importlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from dnnsuite._runs.record import Machine
from dnnsuite.cli.app import main
from dnnsuite.cli.plot import KINDS, draw, kind_for
from dnnsuite.errors import InvalidArgument
from dnnsuite.plots import Request
from result_tables import FIXTURES, a_record, write_monitored, write_record


def plot(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["plot", *map(str, arguments)])
    return int(ended.value.code or 0)


def test_a_workflows_speedup_curve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plot(FIXTURES / "workflow", "--save", tmp_path / "curve", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"files": [f"{tmp_path}/curve.csv", f"{tmp_path}/curve.png"]}
    assert pd.read_csv(tmp_path / "curve.csv", index_col="B").loc[2, "hfta:fp32:avg"] > 0
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_a_suites_rates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(FIXTURES / "suite", tmp_path / "out")
    assert plot(tmp_path / "out") == 0
    assert capsys.readouterr().out.split() == [f"{tmp_path}/out/cpu-two.csv", f"{tmp_path}/out/cpu-two.png"]
    assert "toy-nap:shares:fp32:0" in pd.read_csv(tmp_path / "out" / "cpu-two.csv")


def test_damaged_records_are_named_and_the_status_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(FIXTURES / "workflow", tmp_path / "out")
    damaged = next((tmp_path / "out" / "runs").glob("*hfta*r1")) / "run.json"
    damaged.write_text("{")
    assert plot(tmp_path / "out", "--save", tmp_path / "x") == 0
    assert f"dnnsuite: skipped: {damaged}" in capsys.readouterr().err


def test_unlike_machines_are_drawn_only_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for cpu in ("EPYC", "Xeon"):
        record = a_record(cpu, plan_id=cpu)
        write_record(tmp_path / cpu, replace(record, machine=Machine(cpu_model=cpu, cpus=2)))
    directories = [tmp_path / "EPYC", tmp_path / "Xeon", "--save", tmp_path / "x"]
    assert plot(*directories) == 2
    assert "processor differs: EPYC, 2 CPUs in" in capsys.readouterr().err
    assert not (tmp_path / "x.csv").exists()
    assert plot(*directories, "--allow-unlike") == 0
    assert "pooled although they differ: toy serial fp32 B=1: processor" in capsys.readouterr().err


def test_runs_without_a_baseline_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_record(tmp_path, a_record("one", mode="hfta"))
    assert plot(tmp_path) == 2
    assert "no serial fp32 run finished" in capsys.readouterr().err


def test_plot_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert plot("absent") == 2
    assert "absent: no such directory" in capsys.readouterr().err


def test_the_machines_load_over_B(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for B in (1, 2):
        write_monitored(tmp_path / "out", f"b{B}", [(0.0, 0.0), (1.0, 30.0 * B)], mode="hfta", B=B)
    assert plot(tmp_path / "out", "--kind", "monitor") == 0
    assert capsys.readouterr().out.split() == [
        f"{tmp_path}/out/cpu-toy-monitor.csv",
        f"{tmp_path}/out/cpu-toy-monitor.png",
    ]
    table = pd.read_csv(tmp_path / "out" / "cpu-toy-monitor.csv")
    assert table[table["metric"] == "busy"]["mean"].tolist() == [30.0, 60.0]
    for metric in ("busy", "machine.busy"):
        assert plot(tmp_path / "out", "--kind", "monitor", "--metric", metric, "--save", tmp_path / "one") == 0
        assert set(pd.read_csv(tmp_path / "one.csv")["metric"]) == {"busy"}
    capsys.readouterr()
    assert plot(tmp_path / "out", "--kind", "monitor", "--metric", "gpu_util") == 2
    assert "--metric gpu_util: these runs have machine.busy, machine.memory" in capsys.readouterr().err
    assert plot(tmp_path / "out", "--metric", "busy") == 2


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
