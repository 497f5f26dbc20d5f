# SPDX-License-Identifier: MIT
import json
import math

import pytest

from dnnsuite import report
from dnnsuite.errors import InvalidArgument
from dnnsuite.report._entries import of_suites
from report_runs import mila_result, record
from result_tables import FIXTURES


def test_own_runs(suite):
    out = suite(
        record("atari", rate=1280.0, unit="frames", seed_unit={"name": "updates", "items": 128}),
        record("vae", repeat=1, slot=1, failure="oom", message="out of memory", flags=["throttled"]),
    )
    good, bad = sorted(report.read([out]), key=lambda entry: entry.job)
    assert (good.rate, good.seed_rate, good.unit, good.ok) == (1280.0, 10.0, "frames", True)
    assert (bad.failure, bad.run, bad.device, bad.isolation) == ("oom", "out/001", "1", "affinity")
    assert math.isnan(bad.rate)
    assert bad.flags == ("throttled",)


def test_what_scaling_is_judged_by_is_its_efficiency(suite):
    (entry,) = report.read([suite(record("scaling", rate=300.0, scope="all", metrics={"efficiency": 0.91}))])
    assert (entry.rate, entry.seed_rate) == (300.0, 0.91)


def test_unfinished_runs_are_not_read(suite):
    out = suite(record())
    (out / "runs" / ".tmp-1-vae").mkdir()
    (out / "runs" / ".tmp-1-vae" / "run.json").write_text("{")
    assert len(report.read([out])) == 1


def test_several_suites_and_folders_of_them(suite, tmp_path):
    first, second = suite(record(), directory="a"), suite(record(), directory="b")
    assert {entry.run for entry in report.read([first, second])} == {"a/000", "b/000"}
    assert len(report.read([tmp_path])) == 2


def test_directories_of_one_name_are_told_apart(suite, tmp_path):
    for node in ("nodeA", "nodeB"):
        (tmp_path / node).mkdir()
        suite(*(record(repeat=run) for run in range(4)), directory=f"{node}/out")
    directories = [tmp_path / "nodeA" / "out", tmp_path / "nodeB" / "out"]
    entries = report.read(directories)
    assert {entry.run for entry in entries} == {f"node{node}/out/{run:03d}" for node in "AB" for run in range(4)}
    made = report.make(directories, jobs=1)
    assert made.summary.loc["vae", "runs"] == 8
    assert made.devices.empty


def test_folders_of_the_original_with_runs_of_one_name_are_told_apart(tmp_path):
    for node in ("a", "b"):
        (tmp_path / node / "output0").mkdir(parents=True)
        (tmp_path / node / "output0" / "fast_0.json").write_text(json.dumps(mila_result("vae", 1.0)))
    assert {entry.run for entry in report.read([tmp_path / "a", tmp_path / "b"])} == {"a/output0", "b/output0"}
    assert {entry.run for entry in report.read([tmp_path / "a"])} == {"output0"}


def test_a_suite_of_another_name_is_left_out(suite):
    out = suite(record(), name="fast")
    assert len(report.read([out], "fast")) == 1
    with pytest.raises(InvalidArgument, match="no finished runs of 'baselines'"):
        report.read([out], "baselines")


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"job": "vae"}', json.dumps({**record(), "rate_per_s": "fast"}), json.dumps(record(rate=-5.0))]
)
def test_a_damaged_record_is_named_and_left_out(suite, text):
    out = suite(record(), record(repeat=1))
    path = out / "runs" / "vae-r0-d0" / "run.json"
    path.write_text(text)
    assert [entry.run for entry in report.read([out])] == ["out/001"]
    (problem,) = report.make([out]).problems
    assert str(path) in problem


def test_runs_of_a_workflow_are_entries_by_mode(tmp_path):
    entries = report.read([FIXTURES / "workflow"])
    assert {entry.job for entry in entries} == {"toy serial fp32 B=1", "toy concurrent fp32 B=2", "toy hfta fp32 B=2"}
    assert {entry.run for entry in entries} == {"workflow/000", "workflow/001"}
    assert of_suites(entries) == []


def test_a_rate_that_is_missing_is_a_crash(suite):
    (entry,) = report.read([suite({**record(), "rate_per_s": None})])
    assert entry.failure == "crash"


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(InvalidArgument, match="no such directory"):
        report.read([tmp_path / "gone"])
    with pytest.raises(InvalidArgument, match="no finished runs"):
        report.read([tmp_path])
