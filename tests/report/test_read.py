# SPDX-License-Identifier: MIT
import json
import math

import pytest

from dnnsuite import report
from dnnsuite.errors import Error, InvalidArgument
from report_runs import mila_result, record


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


def test_a_suite_of_another_name_is_left_out(suite):
    out = suite(record(), name="fast")
    assert len(report.read([out], "fast")) == 1
    with pytest.raises(InvalidArgument, match="no results of a suite called 'baselines'"):
        report.read([out], "baselines")


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"job": "vae"}', json.dumps({**record(), "rate_per_s": "fast"})]
)
def test_a_damaged_record_is_named(suite, text):
    out = suite(record())
    path = out / "runs" / "vae-r0-d0" / "run.json"
    path.write_text(text)
    with pytest.raises(Error, match=r"run\.json") as caught:
        report.read([out])
    assert str(path) in str(caught.value)


def test_the_originals_unclosed_list(tmp_path):
    (tmp_path / "output0").mkdir()
    first, second = mila_result("vae", 10.0), mila_result("reso", 20.0, completed=False)
    text = f"[{json.dumps(first)},{json.dumps(second)},\n"
    (tmp_path / "output0" / "fast_0.json").write_text(text)
    vae, reso = report.read([tmp_path], "fast")
    assert (vae.run, vae.device, vae.seed_rate) == ("output0", "0", 10.0)
    assert reso.failure == "crash"


def test_the_originals_last_format(tmp_path):
    nan = {**mila_result("wlm", 3.0, "1"), "batch_loss": [math.nan]}
    (tmp_path / "fast.wlm.R7.D1.20200506-101112-000001.json").write_text(json.dumps(nan))
    (entry,) = report.read([tmp_path], "fast")
    assert (entry.run, entry.device, entry.failure) == ("7", "1", "nan")


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(InvalidArgument, match="no such directory"):
        report.read([tmp_path / "gone"])
    with pytest.raises(InvalidArgument, match="no results"):
        report.read([tmp_path])
