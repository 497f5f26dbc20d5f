# SPDX-License-Identifier: MIT
"""The tables of the page "Which jobs, and why" say what the cards and the workloads say."""

import re
from pathlib import Path

import pytest

from dnnsuite import jobs
from dnnsuite.jobs.cards import all_cards, card_of
from dnnsuite.suites import SUITES

PAGE = (Path(__file__).parents[2] / "docs/measure/jobs.md").read_text(encoding="utf-8")
ROWS = {
    match["job"]: [cell.strip() for cell in match["rest"].split("|")]
    for match in re.finditer(r"^\| `(?P<job>[\w-]+)` \| (?P<rest>.+) \|$", PAGE, re.MULTILINE)
}


def measure(job: str) -> str:
    """What is measured on held-out data, with the target of `--preset quick` if there is one; "" without."""
    workload = getattr(jobs.get(job), "workload", None)
    if workload is None or workload.metric is None:
        return ""
    metric = workload.metric
    target = metric.target.get("quick")
    sign = "≥" if metric.better == "more" else "≤"
    return metric.name.replace("_", " ") + (f" {sign} {target:g}" if target is not None else "")


def test_every_job_is_there_once() -> None:
    assert len(re.findall(r"^\| `", PAGE, re.MULTILINE)) == len(ROWS)
    assert sorted(ROWS) == sorted(card.job for card in all_cards())


@pytest.mark.parametrize("suite", ["2026", "baselines"])
def test_a_suite_is_in_its_section_in_its_order(suite: str) -> None:
    section = PAGE.split(f"## Suite `{suite}`")[1].split("\n## ")[0]
    assert re.findall(r"^\| `([\w-]+)` \|", section, re.MULTILINE) == list(SUITES[suite])


def test_a_row_says_what_the_job_is() -> None:
    for job, (stands_for, measured, seconds, array, data, model) in ROWS.items():
        card = card_of(job)
        assert stands_for
        assert (model, data) == (card.model, card.data), job
        known = measure(job)
        assert measured == known or (not known and measured in ("loss", "loss of fresh draws", "none")), job
        assert re.fullmatch(r"\d+|< 20|-", seconds), job
        assert (array == "yes") is not bool(jobs.get(job).alone), job
