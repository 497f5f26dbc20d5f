# SPDX-License-Identifier: MIT
import io
import time
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from dnnsuite._runs.progress import Progress
from dnnsuite._runs.record import Device, Machine, Metric, Moment, RunRecord, Verdict
from dnnsuite.suites._screen import Screen, rate_text
from dnnsuite.suites._suite import Suite
from dnnsuite.suites.entry import SuiteEntry

SUITE = Suite(
    "baselines", 19, tuple(SuiteEntry(i, key, key, key, "x", "student") for i, key in enumerate("ab", 1)), "cpu"
)
LEFT = [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
OK = RunRecord(
    id="", kind="suite", plan_id="", plan="baselines", job="a", mode="shares", precision="fp32", B=1, repeat=0,
    verdict=Verdict.good(), machine=Machine(), device=Device("cpu"), started=Moment.now(), unit="images",
    metrics=(Metric("throughput", 100.0, "images/s"),), disturbances=("contended", "throttled"),
    details={"key": "a", "slot": 0},
)  # fmt: skip
FASTER = replace(OK, metrics=(Metric("throughput", 200.0, "images/s"),))
BAD = replace(
    OK, verdict=Verdict.failed("oom", "no room"), metrics=(), disturbances=(), details={"key": "a", "slot": 1}
)


def shown(terminal: bool, tmp_path: Path, quiet: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=100, legacy_windows=False)
    (tmp_path / "stdout.txt").write_text("[  3/ 15] | ETA:   0.50 min | Batch Loss   1.0000\n")
    with Progress(console, quiet) as progress:
        screen = Screen(progress)
        screen.begin(SUITE, 2, 4, LEFT)
        screen.start("a", 0)
        screen.watch([tmp_path])
        while terminal and not quiet and "step 3 of 15" not in out.getvalue():  # it is read twice a second
            screen.tick()
            time.sleep(0.05)
        screen.done("a", 0, [OK, FASTER, BAD], 60.0)
        screen.start("b", 0)
        screen.done("b", 0, [OK], 30.0)
    return out.getvalue()


def test_plain_lines(tmp_path: Path) -> None:
    assert shown(False, tmp_path).splitlines() == [
        "baselines: 2 jobs 2 times, 4 of 4 to run",
        "[1/4] a: oom in 60 s  ETA 3:00",
        "        a copy 1: oom: no room",
        "        a: contended, throttled",
        "[2/4] b: passed in 30 s, 100.0 images/s  ETA 1:30",
        "        b: contended, throttled",
    ]


def test_a_table_on_a_terminal(tmp_path: Path) -> None:
    said = shown(True, tmp_path)
    assert "step 3 of 15" in said  # of the job that runs
    assert "run 1 of 2, 3 to run" in said
    assert "ETA 3:00" in said  # b counts as a, until it has run
    assert "ETA 1:30" in said


def test_quiet_is_quiet(tmp_path: Path) -> None:
    assert shown(False, tmp_path, quiet=True) == shown(True, tmp_path, quiet=True) == ""


def test_a_run_of_which_a_copy_failed_has_no_rate() -> None:
    """It was that of the copies that survived, which the tables and pages of the same suite leave out."""
    assert rate_text([BAD]) == rate_text([OK, BAD]) == rate_text([OK, FASTER, BAD]) == ""
    assert rate_text([OK]) == "100.0 images/s"
    assert rate_text([OK, FASTER]) == "2 × 150.0 images/s"


def test_weaker_isolation_is_told_with_its_reason() -> None:
    out = io.StringIO()
    with Progress(Console(file=out, width=200)) as progress:
        screen = Screen(progress)
        screen.isolation("cgroup", [])
        screen.isolation("affinity", ["cpuset: not delegated", "memory: not delegated"])
    assert out.getvalue().splitlines() == [
        "copies are kept apart by: affinity (cpuset: not delegated; memory: not delegated)"
    ]
