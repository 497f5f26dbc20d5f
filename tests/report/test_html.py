# SPDX-License-Identifier: MIT
import re
from html.parser import HTMLParser

from dnnsuite import report
from dnnsuite.report._html import chart
from report_runs import record


class Checker(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.links = [], []

    def handle_starttag(self, tag, attributes):
        self.links += [value for name, value in attributes if name in ("src", "href")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.links += [value for name, value in attributes if name == "src"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_one_file_that_needs_nothing_else(mila_tree):
    page = report.html(report.make([mila_tree], "baselines", "RTX", title="A machine"))
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    assert all(link.startswith("#") for link in checker.links)
    assert "<script" not in page
    assert "prefers-color-scheme: dark" in page
    assert page.count("<svg") == 1
    assert "+1.1458 %" in page


def test_what_came_from_a_file_is_escaped(suite):
    page = report.html(report.make([suite(record(failure="crash", message="<script>alert(1)</script>"))]))
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_without_a_target_the_chart_shows_intervals(suite):
    made = report.make([suite(*(record(repeat=run, rate=100 + run) for run in range(3)))])
    assert re.search(r"<svg[^>]*>", chart(made))
    assert chart(report.make([suite(record("reso"), directory="b")])) == ""


def test_where_nothing_may_be_compared_with_the_target_there_is_no_chart_and_no_score(suite):
    runs = [record(preset="smoke"), record("reso", preset="smoke"), record("ssd", failure="nan", preset="smoke")]
    made = report.make([suite(*runs)], None, "V100")
    assert chart(made) == ""
    # A score of nothing would be 0, which a reader takes for the machine's.
    assert "<h2>Score" not in report.html(made)


def test_what_disturbed_executions_stands_with_the_verdict_and_targets_have_units(suite):
    runs = record(flags=["contended"]), record("wlm", seed_unit={"name": "segments", "items": 35})
    page = report.html(report.make([suite(*runs)], target="V100"))
    head, _, rest = page.partition("<h2>Rates</h2>")
    assert "1 of 2 executions, which are kept: contended (1)" in head
    against = rest.partition("Against the target")[2].partition("</table>")[0]
    assert "<td>segments</td>" in against
    assert "<h2>Conditions</h2>" in rest, "results come before the long list of conditions"


def test_columns_have_words_and_counts_are_whole(suite):
    page = report.html(report.make([suite(*(record(repeat=run, rate=100 + run) for run in range(3)))]))
    assert "machine, /s" in page
    assert not re.search(r"(rate|machine|low)_per_s", page)
    assert re.search(r"<td>vae</td><td>3</td>", page)
    assert re.search(r"This page was made by dnnsuite [\d.]+, \d{4}-\d\d-\d\d", page)
