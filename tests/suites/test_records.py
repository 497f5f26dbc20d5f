# SPDX-License-Identifier: MIT
from pathlib import Path
from typing import Any

from dnnsuite._runs.group import WorkerOutcome
from dnnsuite._runs.record import Device, Isolation, Machine, Moment, RunRecord, Verdict
from dnnsuite.suites._records import ended_run, missing_run, rate_of, run_name

ASKED = RunRecord(
    id="a", kind="suite", plan_id="p", plan="baselines", job="vae", mode="shares", precision="fp32", B=1, repeat=0,
    verdict=Verdict.good(), machine=Machine(), device=Device("cpu"), started=Moment.now(), unit="items",
    isolation=Isolation(asked="auto"), details={"slot": 0},
)  # fmt: skip
RESULT = {
    "rate_per_s": 3.0, "rate_interval_per_s": [2.5, None], "unit": "images", "dropped": 1, "kept": 2,
    "steady": {"steady": None}, "no_interval": "too short", "window_s": 4.0, "flags": ["contended"],
    "items_per_batch": 8,
    "hashes": {"job": "0123456789abcdef", "source": "0"}, "provenance": {"data": {"source": "digits"}},
    "environment": {"versions": {"torch": "2.13.0"}, "threads": 2}, "process": {"peak_rss_bytes": 5},
    "metrics": {"accuracy": 0.5}, "losses": {"first": 2.0, "last": 1.0}, "feed": "memory",
    "training": {"weights": 2, "changed": 2, "skipped_steps": 0.25, "flags": []},
}  # fmt: skip


def ended(folder: Path, verdict: Verdict, result: dict[str, Any], **held: object) -> RunRecord:
    for name in ("spec.json", "result.json", "report.json", "stderr.txt"):
        (folder / name).write_text("[{}]")
    outcome = WorkerOutcome(verdict, result, 2.5, held)
    run = ended_run(folder, ASKED, outcome, {"level": "cgroup", "plan": "hash"}, {"samples": 3})
    left = {path.name for path in folder.iterdir()}
    assert left == ({"stderr.txt", "report.json"} if run.ok else {"stderr.txt"})
    return run


def test_a_run_that_ended_well(tmp_path: Path) -> None:
    run = ended(tmp_path, Verdict.good(), RESULT, survivors=2)
    rate = rate_of(run)
    assert rate is not None
    assert (rate.value, rate.low, rate.high, rate.unit) == (3.0, 2.5, None, "images/s")
    assert run.disturbances == ("contended", "left processes behind")
    assert (run.isolation.level, run.isolation.asked, run.isolation.details["survivors"]) == ("cgroup", "auto", 2)
    assert (run.seconds, run.unit, run.items_per_step, run.job_version) == (2.5, "images", 8.0, "0123456789ab")
    assert (run.data, run.versions["torch"]) == ("digits", "2.13.0")
    why = "too short"
    assert run.window == {"dropped": 1, "kept": 2, "steady": {"steady": None}, "no_interval": why, "seconds": 4.0}
    assert run.details["environment"] == {"versions": {"torch": "2.13.0"}, "threads": 2, "peak_rss_bytes": 5}
    assert run.details["job_metrics"] == {"accuracy": 0.5}
    assert RunRecord.from_dict(run.to_dict()) == run


def test_a_run_that_failed_has_no_figures(tmp_path: Path) -> None:
    run = ended(tmp_path, Verdict.failed("nan", "m"), {"process": {"peak_rss_bytes": 5}})
    assert (run.verdict.failure, run.metrics, run.samples) == ("nan", (), None)
    assert run.details["environment"] == {"peak_rss_bytes": 5}
    assert rate_of(run) is None


def test_one_that_cannot_run_here_has_the_same_details(tmp_path: Path) -> None:
    missing = missing_run(ASKED, "torchvision is not installed")
    assert missing.verdict == Verdict.failed("unavailable", "torchvision is not installed")
    assert set(missing.details) == set(ended(tmp_path, Verdict.good(), RESULT).details)


def test_names_of_runs() -> None:
    assert run_name("vae.2", 3, 1) == "vae.2-r3-d1"
