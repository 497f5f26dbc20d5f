# SPDX-License-Identifier: MIT
"""The README: its two commands, its length, its figure. `docs/test_snippets.py` runs its code."""

import re

import figures
import pages

README = pages.ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")


def test_there_are_exactly_two_set_up_commands():
    assert pages.blocks(README, "sh") == [
        "pip install . && python -m dnnsuite.workflow bert\n",
        "pip install '.[test]' && pytest\n",
    ]


def test_it_is_short():
    assert len(TEXT.splitlines()) <= 130


def test_the_figure_has_the_numbers_of_the_table():
    """If not: python docs/generate/figures.py."""
    table = figures.speeds(figures.SPEEDS.read_text(encoding="utf-8"))
    drawn = set(re.findall(r"<text[^>]*>([\d.]+)×</text>", figures.SPEED_FIGURE.read_text(encoding="utf-8")))
    assert drawn == {f"{row['dnnsuite'].value:g}" for row in table.values()}
    assert figures.SPEED_FIGURE.relative_to(pages.ROOT).as_posix() in TEXT
