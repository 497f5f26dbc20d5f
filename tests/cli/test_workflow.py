# SPDX-License-Identifier: MIT
"""The command line in this process; whole workflows in processes of their own are tests/workflow/test_sweep.py."""

import json
from pathlib import Path

import pandas as pd
import pytest

from command_line import status

TOYS = str(Path(__file__).parent.parent / "workflow")


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(TOYS)
    monkeypatch.setenv("PYTHONPATH", TOYS)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--modes", "vertical"], "unknown mode 'vertical'; accepted: serial, concurrent, mps, mig, hfta"),
        (["--precisions", "fp32,fp8"], "unknown precision 'fp8'; accepted: fp32"),
        (["--device", "abacus"], "unknown device 'abacus'"),
        (["--preset", "x"], "unknown preset 'x'; accepted: quick, default, paper"),
        (["--max-B", "-1"], "--max-B -1: must be at least 1"),
        (["--plan", "1,-2"], "every B must be at least 1"),
        (["--resume"], "nothing to continue"),
        (["--plugin", "nowhere_at_all"], "--plugin nowhere_at_all"),
        (["--repeats", "many"], "Invalid value"),
        (["--no-such-option"], "No such option"),
    ],
)
def test_usage_errors(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert status("workflow", "toy", "--plugin", "toy_jobs", *arguments) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.out == ""
    assert list(tmp_path.iterdir()) == []


def test_unknown_job_lists_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("workflow", "brt") == 2
    said = capsys.readouterr().err
    assert "no workflow 'brt' (did you mean 'bert'?); available: " in said
    assert "bert" in said


def test_out_that_cannot_be_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert status("workflow", "toy", "--plugin", "toy_jobs", "--out", "file/out") == 2
    assert "cannot write to file/out: Not a directory" in capsys.readouterr().err


def test_dry_run_runs_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert status("workflow", "toy", "--plugin", "toy_jobs", "--dry-run", "--modes", "hfta", "--plan", "1,3") == 0
    said = capsys.readouterr().out
    assert "2 runs; those that fit the memory together take turns" in said
    assert "hfta fp32 B=3" in said
    assert status("workflow", "toy", "--plugin", "toy_jobs", "--dry-run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["settings"]["job"] == "toy"
    assert list(tmp_path.iterdir()) == []


def test_a_workflow_as_json_and_its_plot(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DNNSUITE_NEIGHBOURS", "ignore")
    options = ["--plugin", "toy_jobs", "--modes", "serial", "--modes", "mps", "--json"]
    assert status("workflow", "toy", *options) == 0
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert [row["status"].split(":")[0] for row in report["rows"]] == ["ok", "unavailable"]
    assert "serial fp32 B=1: " in captured.err
    assert report["out"].startswith("dnnsuite-runs/toy-")
    assert all(Path(path).stat().st_size > 0 for path in report["files"])

    again = ["--plugin", "toy_jobs", "--resume", "--hfta-tree", "tree"]
    assert status("workflow", "toy", *again) == 0  # the last one, whole already
    captured = capsys.readouterr()
    assert "0 of 1 runs to do" in captured.err
    assert captured.out.endswith("tree/toy\n")
    assert Path("tree/toy/run0/cpu/cpu/fp32/serial/timing.csv").is_file()
    assert status("workflow", "toy", "--plugin", "toy_jobs", "--resume", "--quiet") == 0
    captured = capsys.readouterr()
    assert (captured.err, captured.out.splitlines()[-1]) == ("", report["files"][-1])
    assert status("workflow", "toy", "--plugin", "toy_jobs", "--out", report["out"]) == 2
    assert "continue it with --resume or choose another --out" in capsys.readouterr().err

    assert status("plot", report["out"], "--save", "figure") == 0
    assert capsys.readouterr().out.split() == ["figure.csv", "figure.png"]
    assert pd.read_csv("figure.csv")["serial:fp32:avg"].iloc[0] > 0
    assert Path("figure.png").read_bytes().startswith(b"\x89PNG")


def test_a_failed_workflow_is_status_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("workflow", "toy-crash", "--plugin", "toy_jobs", "--modes", "serial") == 1
    captured = capsys.readouterr()
    assert "failed: crash" in captured.out
    assert "no second step" in captured.err
