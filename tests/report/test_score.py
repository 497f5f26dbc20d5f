# SPDX-License-Identifier: MIT
import dataclasses
import math

import pytest

from dnnsuite.report._entries import ReportEntry
from dnnsuite.report._score import score, score_table
from dnnsuite.report.targets import Target


def entry(job, rate, run=0, failure=None):
    return ReportEntry(job=job, run=str(run), device="0", rate=rate, seed_rate=rate, failure=failure)


TARGETS = {"vae": Target(100, 0.5, 0.05), "reso": Target(10, 0.5, 0.05), "scaling": Target(1, 0.85, 0.02)}


def test_by_hand():
    rates = {"vae": (100, 104), "reso": (4, 4), "scaling": (0.9, 0.9), "dcgan_all": (1, 9)}
    entries = [entry(job, rate, run) for job, pair in rates.items() for run, rate in enumerate(pair)]
    found = score(entries, TARGETS, price=1000)
    assert found.minimal_performance == pytest.approx(2 / 3)  # reso is at 0.4
    assert found.stability == 1
    assert found.mean_performance == pytest.approx(math.sqrt(1.02 * 0.4))  # without scaling
    assert found.value == pytest.approx(2 * 2 / 3 + 1 + 5 * math.sqrt(1.02 * 0.4))
    assert found.price_per_point == pytest.approx(1000 / found.value)
    assert "dcgan_all" not in score_table(entries, TARGETS).index


def test_more_than_one_failure_in_a_hundred_is_no_score():
    entries = [entry("vae", 100, run) for run in range(99)]
    one = entry("vae", math.nan, 99, "nan")
    assert score([*entries, one], TARGETS).value > 0
    two = score([*entries, one, entry("vae", math.nan, 100, "oom")], TARGETS)
    assert (two.failures, two.results) == (2, 101)
    assert two.value == 0
    assert two.price_per_point is None


def test_nothing_scored_is_zero():
    assert score([], TARGETS).value == 0
    assert score([entry("mine", 5.0)], TARGETS).mean_performance == 0


def test_jobs_count_by_their_weights():
    entries = [
        dataclasses.replace(entry(job, rate, run), weight=weight)
        for job, rate, weight in (("vae", 200, 3.0), ("reso", 4, 1.0))
        for run in range(4)
    ]
    found = score(entries, TARGETS)
    assert found.minimal_performance == 3 / 4
    assert found.mean_performance == pytest.approx((2**3 * 0.4) ** (1 / 4))
