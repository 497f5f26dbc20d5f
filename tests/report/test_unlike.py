# SPDX-License-Identifier: MIT
import pytest

from dnnsuite import report
from report_runs import record


def test_mixed_machines_are_refused(suite):
    a, b = suite(record(cpu="EPYC"), directory="a"), suite(record(cpu="Xeon"), directory="b")
    with pytest.raises(
        report.UnlikeRuns, match=r"vae: processor differs: EPYC.* in .*a/runs.*; Xeon.* in .*b/runs"
    ):
        report.make([a, b])
    allowed = report.make([a, b], allow_unlike=True)
    assert any("processor differs" in note for note in allowed.notes)
    assert "processor" not in allowed.machine


@pytest.mark.parametrize(
    "change",
    [
        {"hashes": {"job": "other"}},
        {"copies": 2},
        {"unit": "tokens"},
        {"config": {"device": "cpu", "precision": "bf16", "batch_size": 128}},
        {"config": {"device": "cpu", "precision": "fp32", "batch_size": 64}},
        {"config": {"device": "cpu", "precision": "fp32", "batch_size": 128, "threads": 2}},
    ],
    ids=str,
)
def test_what_ran_must_agree(suite, change):
    with pytest.raises(report.UnlikeRuns, match="report on them apart"):
        report.make([suite(record(), {**record(repeat=1), **change})])


def test_jobs_may_differ_among_themselves_and_failures_do_not_count(suite):
    out = suite(record(), record("reso", unit="tokens"), record(repeat=1, failure="oom", cpu="Xeon"))
    assert report.make([out]).failures.keys() == {"oom"}
