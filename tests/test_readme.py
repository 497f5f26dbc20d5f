# SPDX-License-Identifier: MIT
"""The README does what it says: its snippets run and print what their comments promise."""

import contextlib
import io
import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
TEXT = README.read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def test_there_are_exactly_two_set_up_commands():
    assert blocks("sh") == [
        "pip install . && python -m dnnsuite.workflow bert\n",
        "pip install '.[test]' && pytest\n",
    ]


def test_snippets_run_and_print_what_they_say():
    scope: dict[str, object] = {}
    for block in blocks("python"):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(block, scope)
        promised = re.findall(r"^\s*print\(.*?\)\s+#\s*([^;\n]*)", block, re.MULTILINE)
        assert printed.getvalue().splitlines() == [line.strip() for line in promised]


@pytest.mark.parametrize("target", re.findall(r"\]\((?!http)([^)]+)\)", TEXT))
def test_links_lead_somewhere(target):
    assert (README.parent / target).exists()


def test_rooms_exist():
    """Every path in the table of rooms is in the tree."""
    table = TEXT.split("## Where things are")[1].split("##")[0]
    for path in re.findall(r"`([^`]+/[^`]*)`", table):
        roots = (README.parent, README.parent / "python/dnnsuite")
        assert any((root / path).exists() for root in roots), path
