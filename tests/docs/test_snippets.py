# SPDX-License-Identifier: MIT
"""Pages do what they say: snippets run from the top and print what their comments promise."""

import pytest

import pages

# Run elsewhere: as a script under the profiler, as a plugin, with what they leave looked at.
ELSEWHERE = {"docs/see/profile.md", "docs/measure/own_job.md", "docs/measure/training.md"}
WITH_PYTHON = [page for page in pages.PAGES if pages.blocks(page, "python")]


@pytest.mark.parametrize(
    "page", [page for page in WITH_PYTHON if pages.name_of(page) not in ELSEWHERE], ids=pages.name_of
)
def test_snippets_print_what_they_say(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert pages.promised(page)
    assert pages.printed(page) == pages.promised(page)


def test_the_pages_run_elsewhere_are_there():
    assert {pages.name_of(page) for page in WITH_PYTHON} > ELSEWHERE
