# SPDX-License-Identifier: MIT
"""One vocabulary of options, values refused before anything slow is imported, and help that a newcomer can read."""

import json
import subprocess
import sys

import pytest
from typer.main import get_command

from command_line import status
from dnnsuite.cli.app import app


def _walk(group, before=""):
    for name, command in group.commands.items():
        path = f"{before} {name}".strip()
        yield from _walk(command, path) if hasattr(command, "commands") else [(path, command)]


COMMANDS = dict(_walk(get_command(app)))


def test_options_of_results_are_a_group_of_their_own(capsys):
    for name in ("run", "workflow", "tune", "throughput"):
        assert status(name, "--help") == 0
        assert "--resume" in capsys.readouterr().out.partition("\nResults:")[2]


NAMES = {
    "run x --preset wrong": "quick, default, paper",
    "workflow bert --preset fast": "quick, default, paper",
    "workflow bert --modes serial,hfat": "serial, concurrent, mps, mig, hfta",
    "train --preset wrong": "quick, default, paper",
    "train --device gpu": "auto, cpu, cuda (did you mean 'cuda'?)",
    "throughput bert --precision fp61": "fp32, amp, bf16, fp16, fp64",
    "ladder --rungs fp32,amp": "fp32, +amp",
    "compare a b --method nosuch": "auto, paired, unpaired",
    "tune bert --data imagenet": "auto, real, synthetic",
    "tune bert --modes hfta-3": "serial, concurrent, mps, mig, hfta",
}
PLACES = {
    "ladder --config nosuch": "no configuration 'nosuch'",
    "workflow brt": "no workflow 'brt' (did you mean 'bert'?)",
    "report nosuch": "nosuch: no such directory",
    "tune resnet --space nosuch.yaml": "nosuch.yaml: No such file or directory",
    "pin plan --topology nosuch.json": "nosuch.json: No such file or directory",
    "train bert --until traget": "accepted are target and a value of the job's metric (did you mean 'target'?)",
    "plot nosuch/results.csv": "nosuch/results.csv: no such directory",
    "compare nosuch other": "nosuch: no such directory",
    "baseline save nosuch": "nosuch: no such directory",
}


@pytest.fixture(scope="module")
def refused():
    """(status, slow modules imported by then, what was said) of each line, in one process."""
    code = (
        "import contextlib, io, json, sys; from dnnsuite.cli.app import main; found = {}\n"
        "for line in sys.argv[1:]:\n"
        "    with contextlib.redirect_stderr(io.StringIO()) as said:\n"
        "        try: main(line.split())\n"
        "        except SystemExit as end: found[line] = end.code, [*{'torch', 'pandas'} & {*sys.modules}], "
        "said.getvalue()\n"
        "print(json.dumps(found))"
    )
    done = subprocess.run([sys.executable, "-c", code, *NAMES, *PLACES], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("line", NAMES)
def test_a_name_is_refused_without_torch(refused, line):
    status, slow, said = refused[line]
    assert (status, slow) == (2, [])
    assert f"accepted: {NAMES[line]}" in said


@pytest.mark.parametrize("line", PLACES)
def test_a_job_or_directory_that_does_not_exist_is_refused_without_torch(refused, line):
    status, slow, said = refused[line]
    assert (status, slow) == (2, [])
    assert PLACES[line] in said


def test_a_directory_with_a_similar_name_is_suggested(tmp_path, capsys):
    (tmp_path / "bert-1").mkdir()
    assert status("report", f"{tmp_path}/brt-1") == 2
    assert "no such directory (did you mean 'bert-1'?)" in capsys.readouterr().err


def _given(name, *arguments):
    return COMMANDS[name].make_context(name, list(arguments)).params


def test_presets_have_the_same_names_and_their_old_ones():
    for given, taken in (("quick", "quick"), ("smoke", "quick"), ("baselines", "default"), ("paper", "paper")):
        assert _given("run", "x", "--preset", given)["preset"] == taken
    assert _given("train", "--preset=full")["preset"] == "default"
    for name, arguments in (("throughput", ("bert",)), ("ladder", ())):
        for given, taken in (("default", "default"), ("paper", "paper"), ("full", "default")):
            assert _given(name, *arguments, "--preset", given)["preset"] == taken
    for name in ("workflow", "tune", "advise", "throughput"):
        assert _given(name, "bert", "--quick")["preset"] == "quick"


def test_repeats_and_resume_mean_the_same_everywhere():
    for flag in ("--repeat", "--repeats"):
        assert _given("run", "x", flag, "4")["repeats"] == _given("workflow", "x", flag, "4")["repeats"] == 4
    assert _given("ladder", "--rounds", "3")["repeats"] == _given("ladder", "--repeats", "3")["repeats"] == 3
    for name in ("run", "workflow", "throughput"):
        assert _given(name, "bert", "--resume")["resume"] is _given(name, "bert", "--resume", "auto")["resume"] is True
    assert _given("train", "--resume")["resume"] == _given("train", "--resume", "auto")["resume"] == "auto"
    assert _given("train", "--resume", "c/checkpoint.pt")["resume"] == "c/checkpoint.pt"
    assert _given("train", "sc20", "--resume", "--quiet")["resume"] == "auto"


def test_a_command_behind_dashes_is_left_as_it_is():
    given = _given("profile", "--", "python", "train.py", "--quick", "--repeat", "2", "--resume")
    assert [*given.values()].count(None) < len(given)
    assert any(
        value and "--quick" in value and "--repeat" in value for value in given.values() if isinstance(value, list)
    )


def test_help_is_a_command_too_and_so_is_the_version(capsys):
    assert status("help", "compare") == 0
    assert "dnnsuite compare" in capsys.readouterr().out
    assert status("-V") == 0


def test_values_with_blanks_between_them_are_told_to_have_commas(capsys):
    assert status("workflow", "bert", "--modes", "serial", "hfta", "mps") == 2
    assert "several values are written with commas: --modes serial,hfta,mps" in capsys.readouterr().err
    assert status("workflow", "bert", "hfta") == 2
    assert "commas" not in capsys.readouterr().err
