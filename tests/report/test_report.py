# SPDX-License-Identifier: MIT
import json
import math

import pytest

from dnnsuite import report
from dnnsuite._runs.record import Machine
from report_runs import mila_result, record
from result_tables import FIXTURES, a_record, write_record


def test_it_passes_when_every_job_has_a_row_and_nothing_failed(suite):
    records = [record(repeat=run, rate=100 + run) for run in range(4)]
    made = report.make([suite(*records)], jobs=1)
    assert made.passed
    assert not report.make([suite(record("reso", failure="nan"))], jobs=1).passed


def test_too_few_runs_and_flags_become_notes(suite):
    made = report.make([suite(record(flags=["contaminated: load 7"]))])
    assert "fewer than 4 runs" in made.notes[0]
    assert made.notes[1].endswith("so there is no interval: vae; use `--repeats 6` or more")
    assert made.notes[2] == "1 result is flagged: contaminated: load 7"


def test_conditions_that_all_share_are_the_machine(suite):
    made = report.make([suite(record(), record("reso", hashes={"job": "def"}))])
    assert made.machine["processor"] == "EPYC, 2 CPUs"
    assert made.machine["isolation"] == "affinity"
    assert "job version" not in made.machine


def test_mixed_machines_are_refused(suite):
    a, b = suite(record(cpu="EPYC"), directory="a"), suite(record(cpu="Xeon"), directory="b")
    with pytest.raises(report.UnlikeRuns, match=r"vae: processor differs: EPYC.* in .*a/runs.*; Xeon.* in .*b/runs"):
        report.make([a, b])
    allowed = report.make([a, b], allow_unlike=True)
    assert any("processor differs" in note for note in allowed.notes)
    assert allowed.machine["processor"] == "EPYC, 2 CPUs; Xeon, 2 CPUs"
    assert allowed.machine["commit"] == "not recorded"


@pytest.mark.parametrize(
    "change",
    [
        {"hashes": {"job": "other"}},
        {"copies": 2},
        {"unit": "tokens"},
        {"config": {"device": "cpu", "precision": "bf16", "batch_size": 128}},
        {"config": {"device": "cpu", "precision": "fp32", "batch_size": 64}},
        {"config": {"device": "cpu", "precision": "fp32", "batch_size": 128, "threads": 2}},
        {"isolation": {"level": "none"}},
        {"preset": "smoke"},
        {"provenance": {"data": {"source": "noise"}}},
    ],
    ids=str,
)
def test_what_ran_must_agree(suite, change):
    others = [{**record(repeat=1, slot=slot), **change} for slot in range(change.get("copies", 1))]
    out = suite(record(), *others)
    with pytest.raises(report.UnlikeRuns, match="report on them apart"):
        report.make([out])


def test_jobs_may_differ_among_themselves_and_failures_do_not_count(suite):
    out = suite(record(), record("reso", unit="tokens"), record(repeat=1, failure="oom", cpu="Xeon"))
    assert report.make([out]).failures.keys() == {"oom"}


def test_a_workflow_has_rates_and_no_score():
    made = report.make([FIXTURES / "workflow"], target="RTX")
    assert made.summary.loc["toy hfta fp32 B=2", "runs"] == 2
    assert (made.score, made.scored, len(made.seed), made.statistics) == (None, None, 0, [])
    assert any("`dnnsuite plot` draws curves" in note for note in made.notes)
    assert made.passed
    for render in (report.text, report.markdown, report.html, report.style_seed, report.style_score):
        assert "toy" in render(made) or "runs of a suite" in render(made) or "no score" in render(made)


def test_a_rate_that_was_not_known_is_not_told_and_does_not_pass(tmp_path):
    told = {"quiet": (), "busy": ("inconclusive: 4 others took 1.7 of 2 cores",)}
    for name, disturbances in told.items():
        one = a_record(name, job=name, plan_id=name, disturbances=disturbances)
        write_record(tmp_path / name, one)
    made = report.make([tmp_path])
    assert (made.verdict, made.passed, made.failures) == ("INCONCLUSIVE", False, {})
    assert "busy" in made.headline
    assert "quiet" not in made.headline
    rates = {job.split()[0]: rate for job, rate in made.summary["rate_per_s"].items()}
    assert rates["quiet"] > 0
    assert math.isnan(rates["busy"])
    assert 'class="verdict OPEN"' in report.html(made)


def test_a_workflow_and_a_suite_in_one_report():
    made = report.make([FIXTURES / "workflow", FIXTURES / "suite"], jobs=1)
    assert {"toy hfta fp32 B=2", "toy-nap", "toy-all"} <= set(made.summary.index)
    assert set(made.seed.index) == {"toy-nap", "toy-all"}
    assert made.failures["nan"][0].job == "toy-suite-nan"


def test_smoke_runs_are_not_judged_in_silence(suite):
    out = suite({**record(), "preset": "smoke"})
    assert any("preset smoke" in note for note in report.make([out], target="V100").notes)
    assert not any("preset smoke" in note for note in report.make([out]).notes)


def test_runs_on_several_machines_of_one_kind_are_said(tmp_path):
    for host in ("a", "b"):
        details = {"seed_unit": {"name": "images", "items": 1}}
        one = a_record(host, kind="suite", mode="shares", plan_id=host, details=details, machine=Machine(host))
        write_record(tmp_path / host, one)
    made = report.make([tmp_path])
    assert "measured on 2 machines of one kind: a, b" in made.notes
    assert made.machine["measured"] == "2026-11-22"


def test_the_old_name_of_the_class_is_kept():
    assert report.Report is report.SuiteReport


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


def test_json_of_a_report_without_enough_runs_is_json(suite):
    """NaN is no JSON: a statistic without a value is null."""
    made = report.make([suite(record())], target="V100")
    assert json.loads(json.dumps(made.to_dict(), allow_nan=False))["statistics"][1]["value"] is None


def test_intervals_of_few_runs_are_told(suite):
    few = report.make([suite(*(record(repeat=run, rate=100 + run) for run in range(3)))])
    assert any("fewer than 6 runs" in note and note.endswith(": vae") for note in few.notes)
    many = report.make([suite(*(record(repeat=run, rate=100 + run) for run in range(6)), directory="b")])
    assert not any("fewer than 6 runs" in note for note in many.notes)


def test_a_pass_says_no_more_than_it_knows(mila_tree, suite):
    assert report.make([mila_tree], "baselines", "RTX").headline == "PASS on the mean of all jobs"
    every = report.make([mila_tree], "baselines")
    assert (every.verdict, every.headline) == ("PASS", "PASS, with no target")
    bad = report.make([suite(record(failure="oom"))])
    assert bad.headline == "FAIL"
    assert "verdict: FAIL\n- oom: 1, listed below\n- Bench Passes (0 of " in report.text(bad)
    one = report.make([suite(record(), directory="one")])
    assert (one.verdict, one.headline, one.passed) == ("NOT ENOUGH RUNS", "NOT ENOUGH RUNS: 1 of 4", False)
    assert 'class="verdict OPEN"' in report.html(one)
    assert "bad" not in report.html(one).partition("</style>")[2]


def test_a_job_whose_copies_differ_is_flagged_and_the_others_are_reported(suite):
    copies = [record(job, slot=slot) | {"copies": 2} for job in ("vae", "wlm") for slot in (0, 1)]
    copies[1]["unit"] = "tokens"
    made = report.make([suite(*copies)])
    assert list(made.summary.index) == ["vae", "wlm"]
    assert made.uncompared == {"vae": ["its copies differ in unit (images, tokens)"]}
    assert any(note.startswith("vae is not compared: its copies differ in unit") for note in made.notes)
    assert "vae" in report.text(made)


def test_devices_of_the_originals_tree_are_copies(tmp_path):
    for device in "01":
        write = tmp_path / "output0" / f"fast_{device}.json"
        write.parent.mkdir(exist_ok=True)
        both = [mila_result("vae", 100.0, device), mila_result("scaling", 1.0, "0,1")]
        write.write_text(json.dumps(both[: 2 - int(device)]))
    made = report.make([tmp_path]).summary
    assert made["copies"].to_dict() == {"scaling": 1, "vae": 2}
    assert made["machine_per_s"]["vae"] == 200
