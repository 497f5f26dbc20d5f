# SPDX-License-Identifier: MIT
import json
from pathlib import Path

import pytest

from dnnsuite._files import OutputError
from dnnsuite.pin import Outcome
from dnnsuite.suites._runs import about_run, missing_run, run_name

ASKED = {"job": "vae", "slot": 0}
PINNING = {"level": "cgroup"}


def outcome(**changes: object) -> Outcome:
    values = {
        "returncode": 0, "timed_out": False, "oom_killed": False, "oom_scope": "", "survivors": 0, "elapsed_s": 2.5,
        "cpu_seconds": 1.0, "memory_peak_bytes": 5, "level": "cgroup",
    }  # fmt: skip
    return Outcome(**{**values, **changes})  # type: ignore[arg-type]


def told(folder: Path, result: dict | None, stderr: str = "", **ended: object) -> dict:
    for name in ("spec.json", "report.json"):
        (folder / name).write_text("[{}]")
    (folder / "stderr.txt").write_text(stderr)
    if result is not None:
        (folder / "result.json").write_text(json.dumps(result))
    run = about_run(folder, ASKED, outcome(**ended), PINNING)
    assert {path.name for path in folder.iterdir()} <= {"stderr.txt", "report.json"}
    assert (folder / "report.json").exists() == (run["status"] == "ok")
    return run


OK = {"status": "ok", "failure": None, "message": "", "rate_per_s": 3.0, "flags": ["contended"]}


def test_a_run_that_ended_well(tmp_path: Path) -> None:
    run = told(tmp_path, OK, survivors=2)
    assert (run["status"], run["failure"], run["rate_per_s"], run["job"]) == ("ok", None, 3.0, "vae")
    assert run["flags"] == ["contended", "left processes behind"]
    assert (run["isolation"]["level"], run["isolation"]["elapsed_s"], run["elapsed_s"]) == (
        "cgroup",
        2.5,
        2.5,
    )


@pytest.mark.parametrize(
    ("result", "stderr", "ended", "failure", "words"),
    [
        (OK, "", {"oom_killed": True, "oom_scope": "group"}, "oom", "memory ran out in its share"),
        (None, "", {"oom_killed": True, "oom_scope": "outside", "returncode": -9}, "oom", "in the machine"),
        (None, "", {"timed_out": True, "returncode": -9}, "timeout", "not finished after 2 s"),
        ({"status": "failed", "failure": "nan", "message": "m"}, "", {"returncode": 1}, "nan", "m"),
        (None, "", {}, "crash", "ended early, with status 0"),
        (None, "", {"returncode": -9}, "killed", "SIGKILL"),
        (None, "ValueError: x\n", {"returncode": 1}, "crash", "ValueError: x (exit status 1)"),
        (None, "", {"returncode": -11}, "crash", "SIGSEGV"),
    ],
)
def test_how_it_failed(
    result: dict | None, stderr: str, ended: dict, failure: str, words: str, tmp_path: Path
) -> None:
    run = told(tmp_path, result, stderr, **ended)
    assert (run["status"], run["failure"]) == ("failed", failure)
    assert words in run["message"]


def test_a_worker_that_found_no_room(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot write x: No space left"):
        told(tmp_path, None, "cannot write x: No space left on device\n", returncode=74)


def test_one_that_cannot_run_here_has_the_same_keys(tmp_path: Path) -> None:
    missing = missing_run(ASKED, "torchvision is not installed")
    assert (missing["failure"], missing["message"]) == ("unavailable", "torchvision is not installed")
    assert set(missing) == set(told(tmp_path, OK))


def test_names_of_runs() -> None:
    assert run_name("vae.2", 3, 1) == "vae.2-r3-d1"
