# SPDX-License-Identifier: MIT
"""Commands in the documents are those that there are: each is parsed as the command line would."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import typer

from dnnsuite.cli.app import app

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ("measure/compare.md", "measure/suites.md", "measure/records.md", "reproduce/mila.md")
# In a fenced block a line, in the text between backquotes.
_COMMAND = re.compile(r"(?:^|`|/bin/|  )(dnnsuite [a-z]+ [^`|\n]*?)(?:`|$)", re.MULTILINE)


def commands(page: str) -> list[str]:
    text = (DOCS / page).read_text().replace("\\\n", " ")
    return [found[1].split(" >> ")[0] for found in _COMMAND.finditer(text)]


@pytest.mark.parametrize(
    ("page", "command"), [(page, command) for page in PAGES for command in commands(page)]
)
def test_a_command_is_understood(page: str, command: str) -> None:
    words = shlex.split(command)[1:]
    found = typer.main.get_command(app)
    while hasattr(found, "commands"):
        found = found.commands[words.pop(0)]
    try:
        found.make_context(command, words)
    except Exception as error:  # a page may name a command and one option of it
        if type(error).__name__ != "MissingParameter":
            raise


def test_there_are_some() -> None:
    assert len(commands("measure/compare.md")) >= 10


def test_scripts_are_scripts() -> None:
    yaml = pytest.importorskip("yaml")
    text = (DOCS / "measure/compare.md").read_text()
    blocks = dict.fromkeys(re.findall(r"```(?:sh)\n(.*?)```", text, re.DOTALL))
    (workflow,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (job,) = yaml.safe_load(workflow)["jobs"].values()
    steps = [step["run"] for step in job["steps"] if "run" in step]
    assert len(steps) == 3
    for script in (*blocks, *steps):
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_a_typo_would_be_found() -> None:
    with pytest.raises(Exception, match="--reapeat"):
        test_a_command_is_understood("", "dnnsuite run baselines --reapeat 3")
