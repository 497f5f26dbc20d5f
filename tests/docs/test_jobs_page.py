# SPDX-License-Identifier: MIT
"""The tables of the page "Which jobs, and why" are those that `docs/generate/jobs_page.py` writes."""

import re

import jobs_page
from dnnsuite.jobs.cards import all_cards
from dnnsuite.suites import SUITES

TEXT = jobs_page.PAGE.read_text(encoding="utf-8")


def test_the_page_is_what_is_generated() -> None:
    assert jobs_page.written(TEXT) == TEXT, "run python docs/generate/jobs_page.py"
    assert TEXT.count("<!-- table: ") == len(jobs_page.TABLES)


def test_every_job_is_described_once() -> None:
    tables = "".join(jobs_page.TABLES[name]() for name in ("2026", "baselines", "others"))
    assert sorted(re.findall(r"^\| `([\w-]+)` \|", tables, re.MULTILINE)) == [card["job"] for card in all_cards()]


def test_every_job_of_today_was_measured_sound_and_broken() -> None:
    rows = {each["job"]: each for each in jobs_page.measured()}
    assert list(rows) == list(SUITES["2026"])
    assert all(row["reached"] == "10" for row in rows.values())
