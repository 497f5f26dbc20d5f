# SPDX-License-Identifier: MIT
"""One vocabulary of options, values refused before anything slow is imported, and help that a newcomer can read."""

import re
import shlex
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
#: Options whose texts are the same in every command that has them.
SAME_EVERYWHERE = ("--resume", "--data", "--json", "--quiet", "--device", "--plugin", "--option", "--allow-changed")
ANOTHER = {("train", "--resume"), ("metrics support", "--device")}


def _options(said):
    """Return the text of each option of a help page, in one line, and the place where it begins."""
    found = re.findall(r"^  (?:-\w, )?(--[\w-]+)((?: [^\n]*)?(?:\n {8,}[^\n]*)*)", said, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_each_command_keeps_the_rules(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert status(*name.split(), "--help") == 0
    said = capsys.readouterr().out
    examples = re.findall(rf"^ +dnnsuite ({name}\b.*)$", said, re.MULTILINE)
    assert len(examples) == 2
    assert said.index("Examples:") < said.index("Options:")
    assert max(map(len, said.splitlines())) <= 80
    assert not re.search(r"<(str|int|float|path|list|bool)|\{\w+\}\.|\[\[\[|(?<!--title )\bTEXT\b", said), (
        "a type of Python's"
    )
    assert not re.search(r", as [\d.a-z]+[=,]|\bgoes on\b|\banew\b|\bas written\b|that is here|other people's", said)
    for example in examples:
        words = shlex.split(example)[len(name.split()) :]
        COMMANDS[name].make_context(name, words, resilient_parsing=True)
    options = _options(said)
    choices = re.compile(r"([\w+]+(?:\|[\w+]+)+)")
    for option, text in options.items():
        assert not text.endswith("]") or re.search(r"\[(default: [^\]]+|required)\]$", text), f"{option} {text}"
        words = choices.match(text)
        if words is not None and option not in ("--preset", "--locality", "--rungs"):
            assert ", ".join(words[1].split("|")[:2]) not in text, f"{option} lists its choices twice"


def test_options_of_one_name_say_the_same_in_every_command(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    texts = {}
    for name in COMMANDS:
        assert status(*name.split(), "--help") == 0
        for option, text in _options(capsys.readouterr().out).items():
            if option in SAME_EVERYWHERE and (name, option) not in ANOTHER:
                texts.setdefault(option, {}).setdefault(text, []).append(name)
    assert texts.keys() == set(SAME_EVERYWHERE)
    assert {option: found for option, found in texts.items() if len(found) > 1} == {}


def test_options_of_results_are_a_group_of_their_own(capsys):
    for name in ("run", "workflow", "tune", "throughput"):
        assert status(name, "--help") == 0
        assert "--resume" in capsys.readouterr().out.partition("\nResults:")[2]


NAMES = {
    "run x --preset wrong": "quick, default, paper, fast",
    "workflow bert --preset fast": "quick, default, paper",
    "workflow bert --modes serial,hfat": "serial, concurrent, mps, mig, hfta",
    "train --preset wrong": "quick, default, paper",
    "train --device gpu": "auto, cpu, cuda (did you mean 'cuda'?)",
    "throughput bert --precision fp61": "fp32, amp, bf16, fp16, fp64",
    "ladder --rungs fp32,amp": "fp32, +amp",
    "ladder --config nosuch": "",
    "compare a b --method nosuch": "auto, paired, unpaired",
    "tune bert --data imagenet": "auto, real, synthetic",
}


@pytest.mark.parametrize("line", NAMES)
def test_a_name_is_refused_without_torch(line):
    code = (
        "import sys; from dnnsuite.cli.app import main\n"
        f"try: main({line.split()!r})\nexcept SystemExit as e: print(e.code, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "False"]
    assert (f"accepted: {NAMES[line]}" if NAMES[line] else "no configuration 'nosuch'") in done.stderr


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
