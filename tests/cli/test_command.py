# SPDX-License-Identifier: MIT
"""One vocabulary of options, values refused before anything slow is imported, and help that a newcomer can read."""

import re
import subprocess
import sys

import pytest
from typer.main import get_command

from command_line import status
from dnnsuite.cli.app import app

COMMANDS = {name: each for name, each in get_command(app).commands.items() if not hasattr(each, "commands")}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_begins_with_two_examples_that_parse_and_names_no_type_of_python(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert status(name, "--help") == 0
    said = capsys.readouterr().out
    examples = re.findall(rf"^ +dnnsuite ({name}\b.*)$", said, re.MULTILINE)
    assert len(examples) == 2
    assert said.index("Examples:") < said.index("Options:")
    assert not re.search(r"<(str|int|float|path|list|bool)|\{\w+\}", said)
    for example in examples:
        words = example.split()[1:]
        COMMANDS[name].make_context(name, words, resilient_parsing=True)


def test_options_of_results_are_a_group_of_their_own(capsys):
    for name in ("run", "workflow", "tune", "throughput"):
        assert status(name, "--help") == 0
        assert "--resume" in capsys.readouterr().out.partition("\nResults:")[2]


@pytest.mark.parametrize("line", ["run x --preset wrong", "workflow bert --preset fast", "train --preset wrong"])
def test_a_preset_is_refused_without_torch(line):
    code = (
        "import sys; from dnnsuite.cli.app import main\n"
        f"try: main({line.split()!r})\nexcept SystemExit as e: print(e.code, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "False"]
    assert "accepted: quick, default, paper" in done.stderr


def _given(name, *arguments):
    return COMMANDS[name].make_context(name, list(arguments)).params


def test_presets_have_the_same_names_and_their_old_ones():
    for given, taken in (("quick", "quick"), ("smoke", "quick"), ("baselines", "default"), ("paper", "paper")):
        assert _given("run", "x", "--preset", given)["preset"] == taken
    assert _given("train", "--preset=full")["preset"] == "default"
    for name, arguments in (("throughput", ("bert",)), ("ladder", ())):
        for preset in ("default", "paper", "full"):
            assert _given(name, *arguments, "--preset", preset)["preset"] == "full"
    for name in ("workflow", "tune", "advise", "throughput"):
        assert _given(name, "bert", "--quick")["preset"] == "quick"


def test_repeats_and_resume_mean_the_same_everywhere():
    for flag in ("--repeat", "--repeats"):
        assert _given("run", "x", flag, "4")["repeats"] == _given("workflow", "x", flag, "4")["repeats"] == 4
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
