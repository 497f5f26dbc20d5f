# SPDX-License-Identifier: MIT
import io
from pathlib import Path

from rich.console import Console

from dnnsuite.suites._screen import Durations, Screen, rate_text
from dnnsuite.suites._suite import Suite
from dnnsuite.suites.entry import Entry

SUITE = Suite(
    "baselines", 19, tuple(Entry(i, key, key, key, "x", "student") for i, key in enumerate("ab", 1)), "cpu"
)
LEFT = [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
OK = {"status": "ok", "failure": None, "message": "", "key": "a", "slot": 0, "rate_per_s": 100.0, "unit": "images",
      "flags": ["contended", "throttled"]}  # fmt: skip
BAD = {
    **OK,
    "status": "failed",
    "failure": "oom",
    "message": "no room",
    "slot": 1,
    "rate_per_s": None,
    "flags": [],
}


def shown(terminal: bool, tmp_path: Path, quiet: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=100, legacy_windows=False)
    (tmp_path / "stdout.txt").write_text("[  3/ 15] | ETA:   0.50 min | Batch Loss   1.0000\n")
    with Screen(console, quiet) as screen:
        screen.begin(SUITE, 2, 4, LEFT)
        screen.start("a", 0)
        screen.watch([tmp_path])
        screen._drawn_s = 0.0
        screen.tick()
        screen.done("a", 0, [OK, {**OK, "rate_per_s": 200.0}, BAD], "[ 1/19][ 1/ 3] FAILED | x", 60.0)
        screen.start("b", 0)
        screen.done("b", 0, [OK], "[ 2/19][  /  ] PASSED | x", 30.0)
    return out.getvalue()


def test_plain_lines(tmp_path: Path) -> None:
    assert shown(False, tmp_path).splitlines() == [
        "baselines: 2 jobs 2 times, 4 of 4 to run",
        "[ 1/19][ 1/ 3] FAILED | x | 2 × 150 images/s",
        "        a copy 1: oom: no room",
        "        a: contended, throttled",
        "[ 2/19][  /  ] PASSED | x | 100 images/s",
        "        b: contended, throttled",
    ]


def test_a_table_on_a_terminal(tmp_path: Path) -> None:
    said = shown(True, tmp_path)
    assert "ETA:   0.50 min" in said  # of the job that runs
    assert "run 1 of 2, 3 to run, ETA 3.0 min" in said  # b counts as a, until it has run
    assert "run 2 of 2, 2 to run, ETA 1.5 min" in said


def test_quiet_is_quiet(tmp_path: Path) -> None:
    assert shown(False, tmp_path, quiet=True) == shown(True, tmp_path, quiet=True) == ""


def test_durations_of_jobs_not_seen_are_the_mean_of_the_others() -> None:
    durations = Durations()
    assert durations.expect_s(["a"]) is None
    for key, seconds in (("a", 10.0), ("a", 20.0), ("b", 5.0)):
        durations.add(key, seconds)
    assert durations.expect_s(["a", "b", "c"]) == 15.0 + 5.0 + 10.0


def test_the_rate_is_that_of_the_copies_that_ended_well() -> None:
    assert rate_text([BAD]) == ""
    assert rate_text([OK, BAD]) == "100 images/s"
