# SPDX-License-Identifier: MIT
"""Recipes of images: two stages, no root, a mount for data, and nothing in their context that git leaves out."""

import fnmatch
import re
from pathlib import Path

import pytest

from dnnsuite.cli.app import main

ROOT = Path(__file__).parent.parent
RECIPES = sorted((ROOT / "docker").glob("Dockerfile*"))


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.name)
def test_an_image_has_two_stages_and_runs_as_a_user(recipe):
    text = recipe.read_text(encoding="utf-8")
    build, final = re.split(r"^FROM ", text, flags=re.MULTILINE)[1:]
    assert "AS build" in build.splitlines()[0]
    assert "COPY --from=build" in final
    assert "g++" not in final
    assert re.findall(r"^(USER|VOLUME) (.*)$", final, re.MULTILINE) == [("USER", "dnnsuite"), ("VOLUME", "/data")]


def test_the_apptainer_definition_has_two_stages():
    text = (ROOT / "docker/dnnsuite.def").read_text(encoding="utf-8")
    assert re.findall(r"^Stage: (.*)$", text, re.MULTILINE) == ["build", "final"]
    assert "%files from build" in text


def test_the_context_leaves_out_what_git_leaves_out():
    left_out = (ROOT / ".dockerignore").read_text().split()
    for line in (ROOT / ".gitignore").read_text().split():
        name = line.strip("/")
        assert any(fnmatch.fnmatch(name, pattern.removeprefix("**/")) for pattern in left_out), line


def commands():
    """Commands of ours that the pages and recipes of this folder tell a reader to begin with."""
    pages = [ROOT / "docker/README.md", ROOT / "docker/dnnsuite.def"]
    for page in pages:
        for command in re.findall(r"dnnsuite(?:\.sif| dnnsuite) (train [^`\n]*)", page.read_text(encoding="utf-8")):
            yield pytest.param(command.split(), id=f"{page.name}: {command}")


@pytest.mark.parametrize("command", list(commands()))
def test_a_containers_first_command_is_understood(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*command, "--show"])
    assert ended.value.code == 0, capsys.readouterr().err
