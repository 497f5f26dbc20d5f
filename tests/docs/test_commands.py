# SPDX-License-Identifier: MIT
"""Commands in the documents are those that there are: each is parsed as the command line would."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import typer

import pages
from dnnsuite.cli.app import app

WRITTEN = [*pages.PAGES, pages.ROOT / "CONTRIBUTING.md", pages.ROOT / "notebooks/README.md"]
_FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_LINE = re.compile(r"(?:^|/bin/|  )(dnnsuite [a-z].*)$", re.MULTILINE)  # of a fenced block
_CODE = re.compile(r"`(dnnsuite [a-z][^`\n]*)`")  # in the text
_LEFT_OUT = re.compile(r" \.\.\.| #.*| >> .*| \[[^]]*\]")
_ELSEWHERE = {"docs/measure/training.md", "docs/reproduce/sc20.md"}  # training/test_pages.py runs those
_ROOT = typer.main.get_command(app)


def commands(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    fenced = "\n".join(_FENCE.findall(text))
    found = [*_LINE.findall(fenced), *_CODE.findall(_FENCE.sub("", text))]
    return [_LEFT_OUT.sub("", command).strip() for command in found]


@pytest.mark.parametrize("page", [page for page in WRITTEN if pages.name_of(page) not in _ELSEWHERE], ids=pages.name_of)
def test_commands_are_understood(page: Path) -> None:
    for command in dict.fromkeys(commands(page)):
        understand(command)


def understand(command: str) -> None:
    words = shlex.split(command)[1:]
    found = _ROOT
    while hasattr(found, "commands"):
        if not words:
            return  # the group itself
        assert words[0] in found.commands, command
        found = found.commands[words.pop(0)]
    try:
        found.make_context(command, words)
    except Exception as error:  # a page may name a command and one option of it
        if type(error).__name__ not in ("MissingParameter", "Exit"):
            raise AssertionError(command) from error


def test_there_are_some() -> None:
    assert len(commands(pages.DOCS / "measure/compare.md")) >= 10
    assert sum(len(commands(page)) for page in WRITTEN) > 100


def test_scripts_are_scripts() -> None:
    yaml = pytest.importorskip("yaml")
    page = pages.DOCS / "measure/compare.md"
    (workflow,) = pages.blocks(page, "yaml")
    (job,) = yaml.safe_load(workflow)["jobs"].values()
    steps = [step["run"] for step in job["steps"] if "run" in step]
    assert len(steps) == 3
    for script in (*dict.fromkeys(pages.blocks(page, "sh")), *steps):
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize("command", ["dnnsuite run baselines --reapeat 3", "dnnsuite rnu baselines"])
def test_a_typo_would_be_found(command: str) -> None:
    with pytest.raises(AssertionError, match=r"reapeat|rnu"):
        understand(command)
