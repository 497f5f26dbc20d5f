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

WRITTEN = [
    *pages.PAGES,
    *(
        pages.ROOT / name
        for name in ("CONTRIBUTING.md", "notebooks/README.md", "docker/README.md", "examples/README.md")
    ),
]
_FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`([^`\n]*)`")  # in the text
# Perhaps behind the command of a container, a launcher or a profiler.
_COMMAND = re.compile(r"^(?:.*(?:\s|/bin/))?dnnsuite(?:(?<=-m dnnsuite)\.)?(?: |(?<=\.))([a-z].*)$", re.MULTILINE)
_LEFT_OUT = re.compile(r" \.\.\.| ….*| #.*| >> .*| \[[^]]*\]")
_ROOT = typer.main.get_command(app)


def commands(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    fenced = "\n".join(block for block in _FENCE.findall(text) if not block.startswith("```bibtex"))
    lines = [*fenced.splitlines(), *_CODE.findall(_FENCE.sub("", text))]
    found = [command for line in lines for command in _COMMAND.findall(_LEFT_OUT.sub("", line))]
    return [command.strip() for command in found]


@pytest.mark.parametrize("page", WRITTEN, ids=pages.name_of)
def test_commands_are_understood(page: Path) -> None:
    for command in dict.fromkeys(commands(page)):
        understand(command)


def understand(command: str) -> None:
    words = shlex.split(command)
    found = _ROOT
    while hasattr(found, "commands"):
        if not words:
            return  # the group itself
        assert words[0] in found.commands, command
        found = found.commands[words.pop(0)]
    try:
        found.make_context(command, words)
    except Exception as error:  # a page may name a command and one option of it
        if type(error).__name__ != "MissingParameter" and getattr(error, "exit_code", 1) != 0:
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


@pytest.mark.parametrize("command", ["run baselines --reapeat 3", "rnu baselines", "run baselines --preset tiny"])
def test_a_typo_would_be_found(command: str) -> None:
    with pytest.raises(AssertionError, match=r"reapeat|rnu|tiny"):
        understand(command)
