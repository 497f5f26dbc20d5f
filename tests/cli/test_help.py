# SPDX-License-Identifier: MIT
"""The help of every command, those of groups too, keeps the rules of the others."""

import re
import shlex

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
ANOTHER = {("train", "--resume"), ("metrics support", "--device"), ("tune", "--data")}


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


#: Commands that measure or train, with the options of the vocabulary that have no meaning there.
MEASURES = {
    "workflow": "", "tune": "", "run": "", "throughput": "", "ladder": "",
    "train": "--repeats", "profile": "--preset --repeats", "advise": "--repeats --resume --out --quiet",
    "roofline": "--preset --repeats --resume --data",
}  # fmt: skip
VOCABULARY = {"--preset", "--repeats", "--resume", "--data", "--out", "--json", "--quiet"}


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_the_options_that_make_sense_there(name, capsys):
    assert status(*name.split(), "--help") == 0
    options = _options(capsys.readouterr().out)
    if name in MEASURES:
        assert VOCABULARY - options.keys() == set(MEASURES[name].split())
    assert ("--json" in options) == (name != "pin exec"), "pin exec becomes another program"
    if "--preset" in options:
        assert options["--preset"].startswith("quick|default|paper ")


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
