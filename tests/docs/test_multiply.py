# SPDX-License-Identifier: MIT
"""The pages in docs/multiply do what they say: snippets run and print what their comments promise, links lead on."""

import contextlib
import io
import re
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[2] / "docs/multiply").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_snippets_print_what_they_say(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text, scope, printed = page.read_text(encoding="utf-8"), {}, io.StringIO()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    with contextlib.redirect_stdout(printed):
        for block in blocks:
            exec(block, scope)
    promised = re.findall(r"^\s*print\(.*\)  # (.*)$", "\n".join(blocks), re.MULTILINE)
    assert promised
    assert printed.getvalue().splitlines() == promised
    for target in re.findall(r"\]\((?!http)([^)]+)\)", text):
        assert (page.parent / target).exists()
