# SPDX-License-Identifier: MIT
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from command_line import status

TOYS = str(Path(__file__).parent.parent / "suites")


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(TOYS)
    monkeypatch.setenv("PYTHONPATH", TOYS)
    monkeypatch.setenv("DNNSUITE_CGROUP_PARENT", f"/dnnsuite-ci-{os.getpid()}")
    monkeypatch.chdir(tmp_path)


TOY = ("toy-nap", "--plugin", "suite_toys", "--device", "cpu")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--preset", "x"], "unknown preset 'x'; accepted: quick, default, paper"),
        (["--repeat", "0"], "--repeats 0: must be 1 to 10,000"),
        (["--copies", "few"], "--copies few: expected per-gpu, all, or a number of at least 1"),
        (["--pin", "x"], "--pin x: accepted: auto, cgroup, affinity, none"),
        (["--nproc", "2"], "--nproc 2: run measures copies of a job side by side, each in one process"),
        (["--shard"], "to train one model in several processes, to the same target, use `dnnsuite train JOB`"),
        (["--name", "vae"], "no job 'vae' in this suite; it has toy-nap"),
        (["--dataroot", "absent"], "--dataroot absent: no such directory"),
        (["--resume"], "--resume: there is no dnnsuite-runs/toy-nap-*"),
        (["--resume", "--out", "x"], "holds no suite.json"),
    ],
)
def test_usage_errors(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert status("run", *TOY, *arguments) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_malformed_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('[\n {"name": "toy-nap", "args": {\n  "--numbr": 5}}]')
    assert status("run", "x.json", "--plugin", "suite_toys") == 2
    assert 'error: x.json:3: job "toy-nap", key "--numbr" is not a flag of this job' in capsys.readouterr().err


def test_dry_run_prints_a_command_for_each_job(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert status("run", "baselines", "--dry-run", "--device", "cpu") == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert len(lines) == 19
    assert lines[0].startswith("./regression/polynome/pytorch/run.sh --repeat 20 --number 1000 --batch-size 256")
    assert "19 jobs on cpu: " in captured.err
    assert "student0" in captured.err
    assert status("run", *TOY, "--dry-run", "--json", "--repeat", "3") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["settings"]["repeat"], said["jobs"][0]["job"]) == (3, "toy-nap")
    assert list(tmp_path.iterdir()) == []


def test_the_command_leaves_torch_to_its_workers() -> None:
    """Its own time is added to that of each job."""
    code = (
        "import sys; from dnnsuite.cli.app import main\n"
        "for line in sys.argv[1:]:\n"
        "    try: main(line.split())\n"
        "    except SystemExit as end: assert not end.code, line\n"
        "print({'torch', 'numpy', 'pandas', 'matplotlib'} & {*sys.modules})"
    )
    every = "run baselines --dry-run --device cpu"
    one = "run toy-nap --plugin suite_toys --device cpu --copies 1 --out o"
    said = subprocess.run([sys.executable, "-c", code, every, one], capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[-1] == "set()"


def test_show_makes_a_file_to_edit(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert status("run", *TOY, "--show") == 0
    assert capsys.readouterr().out == "toy-nap\n"
    assert status("run", *TOY, "--show", "--json") == 0
    text = capsys.readouterr().out
    (tmp_path / "tweaked.json").write_text(text)
    assert status("run", "tweaked.json", *TOY[1:], "--show", "--json") == 0
    assert json.loads(capsys.readouterr().out) == json.loads(text)


def test_a_suite_as_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert status("run", *TOY, "--json", "--copies", "1") == 0
    captured = capsys.readouterr()
    said = json.loads(captured.out)
    assert (said["suite"], said["ok"]) == ("toy-nap", True)
    assert [(run["job"], run["status"]) for run in said["runs"]] == [("toy-nap", "ok")]
    assert said["out"].startswith("dnnsuite-runs/toy-nap-")
    assert "[1/1] toy-nap: passed in " in captured.err
    assert status("run", *TOY, "--resume") == 0  # the last one, whole already
    assert "0 of 1 to run" in capsys.readouterr().err
    assert status("run", *TOY, "--resume", "--quiet") == 0
    assert capsys.readouterr() == (f"results in {said['out']}; report: dnnsuite report {said['out']}\n", "")


def test_a_failed_suite_is_status_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("run", "toy-suite-crash", *TOY[1:], "--copies", "1", "--out", "o") == 1
    captured = capsys.readouterr()
    assert captured.out == "results in o; report: dnnsuite report o\n"
    # With the error's kind and place, if the job is a plugin's in this process.
    assert re.search(r"toy-suite-crash run 0 copy 0: crash: (LookupError: )?no second step", captured.err)
