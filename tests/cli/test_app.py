# SPDX-License-Identifier: MIT
import subprocess
import sys

import pytest
from typer.main import get_command

import dnnsuite
from command_line import status


@pytest.mark.parametrize("module", ["dnnsuite", "dnnsuite.workflow"])
def test_help_imports_nothing_slow(module: str) -> None:
    code = (
        "import runpy, sys\n"
        f"sys.argv = ['x', '--help']\ntry: runpy.run_module({module!r}, run_name='__main__')\nexcept SystemExit: pass\n"
        "print(sorted({'torch', 'pandas', 'matplotlib'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[0].startswith("Usage: ")
    assert said.splitlines()[-1] == "[]"


def test_a_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m dnnsuite list | true"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("--version") == 0
    assert capsys.readouterr().out == f"dnnsuite {dnnsuite.__version__}\n"


def test_alone_it_shows_where_to_begin(capsys: pytest.CaptureFixture[str]) -> None:
    from dnnsuite.cli import app

    assert status() == 2
    said = capsys.readouterr().out
    shown = {line.split()[1] for line in said.splitlines() if line.startswith("  dnnsuite ")}
    assert shown >= {"doctor", "list", "workflow", "tune", "run", "profile"}
    assert shown <= set(get_command(app.app).commands)


def test_summaries_of_commands_are_not_cut(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert status("--help") == 0
    commands = capsys.readouterr().out.partition("Commands:")[2]
    assert "doctor" in commands
    assert "..." not in commands


TYPOS = {
    "workfow bert": "workflow",
    "run baselnes": "baselines",
    "run baselines --name toy_rge": "toy_reg",
    "run toy_reg --preset smok": "smoke",
    "run toy_reg --device gpu": "cuda",
    "run toy_reg --precision fp61": "fp16",
    "run toy_reg --order shufled": "shuffled",
    "run toy_reg --pin cgrop": "cgroup",
    "run toy_reg --require afinity": "affinity",
    "run toy_reg --monitor nvlm": "nvml",
    "run toy_reg --data sintetic": "synthetic",
    "workflow convergance": "convergence",
    "workflow resnet_partialy_fused": "resnet_partially_fused",
    "workflow bert --modes hfat": "hfta",
    "workflow bert --preset papr": "paper",
    "workflow bert --option dropot=0.1": "dropout",
    "workflow bert --precisions FP23": "fp32",
    "throughput toy_reg --preset quik": "quick",
    "throughput toy_reg --precision FP32": "fp32",
    "train --preset ful": "full",
    "train epoch=3": "max_epochs",
    "ladder --rungs fp32,+apm": "+amp",
    "plot . --kind throughptu": "throughput",
    "report . --style sede": "seed",
    "show toyreg": "toy_reg",
    "data where mnits": "mnist",
    "tune mobilenet_v3_small --algorithm hyperbnd": "hyperband",
    "advise brt": "bert",
}


@pytest.mark.parametrize("line", TYPOS)
def test_a_typo_is_answered_with_the_nearest_name(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = line.split()
    more = ["--dry-run"] if arguments[0] in ("run", "workflow") else []
    assert status(*arguments, *more) == 2
    assert f"id you mean '{TYPOS[line]}'?" in capsys.readouterr().err


REFUSED = {
    "pin run --cores 0-3 -- true": "--cores is not an option of this command; write the command after --, e.g. ",
    "pin run --timeout -1 -- true": "--timeout -1.0: must be a positive number of seconds",
    "profile vae --threads -1": "--threads -1: must be at least 1",
    "profile mine.py": "mine.py is not a job; to profile a script: dnnsuite profile -- python mine.py",
    "train optimizer=adam": "unknown key 'optimizer'; the keys are lr, momentum, ",
}


@pytest.mark.parametrize("line", REFUSED)
def test_a_refusal_names_the_value_and_the_way_out(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(*line.split()) == 2
    assert REFUSED[line] in capsys.readouterr().err
