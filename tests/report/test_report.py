# SPDX-License-Identifier: MIT
import json

from dnnsuite import report
from report_runs import record


def test_it_passes_when_every_job_has_a_row_and_nothing_failed(suite):
    records = [record(repeat=run, rate=100 + run) for run in range(4)]
    made = report.make([suite(*records)], jobs=1)
    assert made.passed
    assert not report.make([suite(record("reso", failure="nan"))], jobs=1).passed


def test_too_few_runs_and_flags_become_notes(suite):
    made = report.make([suite(record(flags=["contaminated: load 7"]))])
    assert "fewer than 4 runs" in made.notes[0]
    assert made.notes[1] == "1 results are flagged: contaminated: load 7"


def test_conditions_that_all_share_are_the_machine(suite):
    made = report.make([suite(record(), record("reso", hashes={"job": "def"}))])
    assert made.machine["processor"] == "EPYC, 2 CPUs"
    assert "job" not in made.machine


def test_excluded_jobs_are_not_there(suite):
    made = report.make([suite(record(), record("reso"))], exclude=["reso"])
    assert list(made.summary.index) == ["vae"]


def test_json_has_every_part_and_no_nan(mila_tree):
    made = report.make([mila_tree], "baselines", "RTX", price=5000.0)
    found = json.loads(json.dumps(made.to_dict(), allow_nan=False))
    assert found["passed"] is True
    assert len(found["summary"]) == 19
    assert found["score"]["price_per_point"] > 0
    assert {line["name"] for line in found["statistics"]} >= {"Bench Passes", "Performance"}
