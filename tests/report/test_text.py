# SPDX-License-Identifier: MIT
import math

import pytest

from dnnsuite import report
from dnnsuite.report._text import FORMATS
from report_runs import record


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0012345, "0.001234"),
        (1.2345, "1.234"),
        (123456.7, "123,457"),
        (0.0, "0"),
        (math.nan, "-"),
        (9.99996, "10.000"),
    ],
)
def test_rates_have_four_digits(value, shown):
    assert FORMATS["rate_per_s"](value) == shown


def test_text_has_all_parts(suite):
    records = [record(repeat=run, slot=slot, rate=100 + slot) for run in range(4) for slot in range(2)]
    out = suite(*records, record("reso", failure="oom", message="needs 9 GiB"))
    text = report.text(report.make([out], target="V100"))
    for part in (
        "Rates",
        "Devices",
        "Score",
        "oom: reso, run out/000, device 0: needs 9 GiB",
        "affinity 9",
        "Definitions",
    ):
        assert part in text
    assert not any(line != line.rstrip() for line in text.splitlines()[3:] if not line.startswith(("bench", "Perf")))


def test_damaged_records_are_named(suite):
    out = suite(record(), record(repeat=1))
    (out / "runs" / "vae-r1-d0" / "run.json").write_text("{")
    made = report.make([out])
    for render in (report.text, report.markdown, report.html):
        assert "Damaged records, left out" in render(made)
        assert "vae-r1-d0" in render(made)


def test_markdown_escapes_what_would_break_a_table(suite):
    text = report.markdown(report.make([suite(record(unit="a|b"))]))
    assert "a\\|b" in text
    assert text.startswith("# ")


def test_without_a_target_there_is_no_diff(suite):
    made = report.make([suite(*(record(repeat=run) for run in range(4)))])
    assert "diff" not in report.style_seed(made)
    few = report.style_seed(report.make([suite(record(), directory="few")]))
    assert "Deviation Quantile (80%) : n/a       | n/a  |" in few
    assert "no score without a target" in report.style_score(made)
