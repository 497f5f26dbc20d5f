# SPDX-License-Identifier: MIT
"""Whole suites with workers of their own; and what is left when one is interrupted or killed."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from children import assert_ends
from dnnsuite import jobs, report, results
from dnnsuite._files import TEMPORARY, OutputError
from dnnsuite._runs.reading import read_run
from dnnsuite.errors import Error, InvalidArgument, Unavailable
from dnnsuite.pin import _partition, find
from dnnsuite.pin._groups import of_run
from dnnsuite.pin.errors import CgroupReadOnly
from dnnsuite.suites import SUITE_FILE, Finished, _runner
from waiting import text_of, wait_for


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    assert not [left for left in find() if left.owner == os.getpid()]


def jobs_file(folder: Path, *names: str, **arguments: object) -> Path:
    path = folder / "toys.json"
    flags = {f"--{name.replace('_', '-')}": value for name, value in arguments.items()}
    path.write_text(json.dumps([{"name": name, "args": flags} for name in names]))
    return path


@pytest.fixture(scope="module")
def finished(toys: None, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    from dnnsuite.suites import run_suite

    folder = tmp_path_factory.mktemp("finished")
    path = folder / "toys.json"
    path.write_text(
        json.dumps(
            [
                {
                    "name": "toy_reg",
                    "cmd": "./regression/polynome/pytorch/run.sh",
                    "args": {"--repeat": 24, "--number": 3},
                },
                {"name": "toy-all"},
            ]
        )
    )
    asked = {"plugins": ["suite_toys"], "device": "cpu", "repeat": 2, "copies": "2", "order": "shuffled"}
    return run_suite(str(path), asked, folder / "out", quiet=True)


def test_a_run_for_each_copy_of_each_job_in_each_repeat(finished: Finished) -> None:
    assert finished.ok
    names = sorted(path.name for path in (finished.root / "runs").iterdir())
    assert names == sorted([f"toy_reg-r{r}-d{d}" for r in (0, 1) for d in (0, 1)] + ["toy-all-r0-d0", "toy-all-r1-d0"])
    for name in names:
        files = {path.name for path in (finished.root / "runs" / name).iterdir()}
        assert files == {"run.json", "samples.csv", "report.json", "stdout.txt", "stderr.txt", "monitor.csv"}


def test_the_record_of_a_run(finished: Finished) -> None:
    run = read_run(finished.root / "runs" / "toy_reg-r1-d1" / "run.json")
    details = run.details
    assert (run.kind, run.plan, run.plan_id, run.mode) == ("suite", "toys", finished.state["id"], "shares")
    assert (run.job, run.repeat, run.share, run.copies) == ("toy_reg", 1, "1", 2)
    assert (run.verdict.status, run.verdict.failure, run.unit) == ("ok", None, "samples")
    assert (run.seed, details["scope"], details["arguments"]["--number"]) == (1 + 100 * 2, "student", 3)
    assert details["seed_unit"] == {"name": "samples", "items": 1}
    assert (run.items_per_step, run.batch_size, details["items_per_batch"]) == (256, 256, 256)
    (rate,) = run.metrics  # an end that is infinite, as of a few wild observations, is null
    assert (rate.low or 0) < rate.value < (rate.high or float("inf"))
    assert (run.window["dropped"], run.window["kept"]) == (10, 14)
    assert 0 < details["data_wait_share"] < 1
    assert run.window["steady"]["method"]
    assert run.isolation.details["ok"]
    assert run.isolation.details["plan"] == finished.state["plan"]["hash"]
    assert (run.isolation.asked, run.precision, run.preset) == ("auto", "fp32", "")
    assert details["setup_s"] > 0
    assert run.seconds > 0.5 * details["setup_s"]  # which begins when its group does
    assert len(details["hashes"]["job"]) == 64
    other = read_run(finished.root / "runs" / "toy_reg-r0-d0" / "run.json")
    assert other.details["hashes"] == details["hashes"]
    assert other.job_version == run.job_version == details["hashes"]["job"][:12]
    assert read_run(finished.root / "runs" / "toy-all-r0-d0" / "run.json").share == "all"


def test_samples_give_the_rate(finished: Finished) -> None:
    directory = finished.root / "runs" / "toy_reg-r0-d0"
    rows = list(csv.DictReader((directory / "samples.csv").read_text().splitlines()))
    kept = [row for row in rows if row["phase"] == "train"]
    seconds = sum(int(row["t_stop_ns"]) - int(row["t_start_ns"]) for row in kept) * 1e-9
    rate = read_run(directory / "run.json").metrics[0].value
    assert sum(int(row["items"]) for row in kept) / seconds == pytest.approx(rate)
    assert (len(rows), len(kept)) == (24, 14)


def test_copies_begin_together(finished: Finished) -> None:
    edges = []
    for copy in (0, 1):
        rows = list(csv.DictReader((finished.root / f"runs/toy_reg-r0-d{copy}/samples.csv").read_text().splitlines()))
        setup_s = read_run(finished.root / f"runs/toy_reg-r0-d{copy}/run.json").details["setup_s"]
        edges.append((int(rows[0]["t_start_ns"]), setup_s))
    assert abs(edges[0][0] - edges[1][0]) * 1e-9 < min(setup_s for _, setup_s in edges)


def test_standard_output_is_the_originals(finished: Finished) -> None:
    lines = (finished.root / "runs" / "toy_reg-r0-d0" / "stdout.txt").read_text().splitlines()
    rule = "-" * 80
    assert lines[0] == rule
    assert lines[1] == "                    batch_size: 256"
    second = lines.index(rule, 1)
    assert lines[second + 1].startswith("[  0/ 24] | ETA: ")
    third = lines.index(rule, second + 1)
    assert third == second + 25
    assert json.loads("\n".join(lines[third + 1 : -1]))["name"] == "toy_reg"
    assert lines[-1] == rule


def test_reports_that_the_original_reads(finished: Finished) -> None:
    assert sorted(path.name for path in (finished.root / "mila").iterdir()) == ["0", "1"]
    for run in ("0", "1"):
        by_device = []
        for copy in (0, 1):
            text = (finished.root / "mila" / run / f"toys_{copy}.json").read_text()
            by_device.append(json.loads(text.strip()[:-1] + "]"))
        assert [report["name"] for report in by_device[0]] == ["toy_reg", "toy-all"]
        assert [report["name"] for report in by_device[1]] == ["toy_reg"]
        one, two = by_device[0][0], by_device[1][0]
        assert (one["unique_id"], one["version"]) == (two["unique_id"], two["version"])
        assert (one["vcd"], two["vcd"], one["run_id"]) == ("0", "1", int(run))
        assert one["train_item"]["avg"] == pytest.approx(256 * 3 / one["train"]["avg"])
        assert by_device[0][1]["train_item"]["avg"] == pytest.approx(2 * 4 / by_device[0][1]["train"]["avg"])


def test_the_summary_is_the_originals(finished: Finished) -> None:
    lines = (finished.root / "summary.txt").read_text().splitlines()
    assert [line.split()[0] for line in (lines[2], lines[5])] == ["Total", "Total"]
    shown = {line.rpartition(" | ")[2]: line for line in lines[:2]}
    assert shown["./regression/polynome/pytorch/run.sh"].startswith("[ 1/ 2][  /  ] PASSED |     0.")
    assert shown["toy-all"].startswith("[ 2/ 2][  /  ] PASSED |     0.")


def test_the_suites_own_record(finished: Finished) -> None:
    state = json.loads((finished.root / SUITE_FILE).read_text())
    assert (state["name"], state["size"], state["status"]) == ("toys", 2, "done")
    assert [sorted(order) for order in state["order"]["jobs"]] == [["toy-all", "toy_reg"]] * 2
    assert state["order"]["kind"] == "shuffled"
    assert [repeat["complete"] for repeat in state["repeats"]] == [True, True]
    assert state["isolation"]["level"] in ("cgroup", "affinity")


def test_nothing_to_do_is_done_at_once(finished: Finished, run_toy) -> None:
    before = (finished.root / "summary.txt").read_text()
    assert run_toy("toys", finished.root, resume=True).ok
    assert (finished.root / "summary.txt").read_text() == before
    with pytest.raises(InvalidArgument, match=r"was made with other settings: --copies is 1, was 2"):
        run_toy("toys", finished.root, resume=True, copies="1")
    with pytest.raises(InvalidArgument, match=r"--repeats 1: .* has 2 already"):
        run_toy("toys", finished.root, resume=True, repeat=1)
    with pytest.raises(InvalidArgument, match="the suite is baselines, was toys"):
        run_toy("baselines", finished.root, resume=True)


def test_a_jobs_file_that_changed_is_refused_or_its_runs_say_so(run_toy, tmp_path: Path) -> None:
    path = jobs_file(tmp_path, "toy-nap", number=2)
    out = run_toy(path, tmp_path / "out", copies="1").root
    before = (out / SUITE_FILE).read_bytes()
    jobs_file(tmp_path, "toy-nap", "toy-all", number=3)
    words = r"toy-nap: number is 3, was 2.*toy-all is new.*--allow-changed toy-nap --allow-changed toy-all"
    with pytest.raises(InvalidArgument, match=words):
        run_toy(path, out, resume=True, repeat=2)
    assert (out / SUITE_FILE).read_bytes() == before
    again = run_toy(path, out, resume=True, repeat=2, allow_changed=["toy-nap", "toy-all"])
    told = {(run.job, run.repeat): (run.details["number"], "resumed" in run.changed) for run in again.runs}
    assert told == {
        ("toy-nap", 0): (2, False), ("toy-nap", 1): (3, True), ("toy-all", 0): (3, True), ("toy-all", 1): (3, True)
    }  # fmt: skip


FAILURES = {
    "toy-suite-nan": ("nan", "the loss of batch 3 is nan"),
    "toy-suite-crash": ("crash", "no second step"),
    "toy-oom": ("oom", ""),
    "toy-early": ("crash", "ended early, with status 0 and no result"),
    "toy-short": ("data", "StopIteration"),
    "toy-killed": ("killed", "SIGKILL"),
    "toy-no-number": ("nan", "the metric 'error' on held-out data is NaN"),
}


def test_failures_have_classes_and_stop_nobody(run_toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_runner, "memory_share_bytes", lambda copies: 512 << 20)  # for the hungry one
    path = jobs_file(tmp_path, *FAILURES, "toy-nap", repeat=3)
    done = run_toy(path, tmp_path / "out", pin="none", copies="1")
    assert not done.ok
    said = {run.job: run for run in done.runs}
    for job, (failure, message) in FAILURES.items():
        assert (said[job].verdict.status, said[job].verdict.failure) == ("failed", failure)
        assert message in said[job].verdict.message
        assert said[job].metrics == ()
        assert said[job].details["seed_unit"] == {"name": "naps", "items": 1}
        assert not (done.root / "runs" / f"{job}-r0-d0" / "report.json").exists()
    assert said["toy-nap"].ok
    lines = (done.root / "summary.txt").read_text().splitlines()
    assert [line[7:22] for line in lines[:-1]] == ["[ 1/ 1] FAILED "] * len(FAILURES) + ["[  /  ] PASSED "]
    reports = json.loads((done.root / "mila" / "0" / "toys_0.json").read_text().strip()[:-1] + "]")
    assert [report["name"] for report in reports] == ["toy-nap"]
    read = results.load(done.root / "mila")  # nothing that failed is missing from the original's tree
    assert dict(zip(read["job"], read["failure"], strict=True)) == {
        **{job: failure for job, (failure, _) in FAILURES.items()}, "toy-nap": None,
    }  # fmt: skip


def test_a_missed_target_is_a_rate_that_the_report_does_not_pass(run_toy, tmp_path: Path) -> None:
    done = run_toy(jobs_file(tmp_path, "toy-missed", "toy-infinite", "toy-nap"), tmp_path / "out", copies="1")
    assert all(run.ok and run.metrics for run in done.runs)
    assert not done.ok
    made = report.make([done.root], allow_unlike=True)
    assert made.verdict == "FAIL"
    assert not made.passed
    assert made.missed == {
        "toy-missed": "error 0.25000, target 0.10000 or less: MISSED",
        "toy-infinite": "error infinite, target 0.10000 or less: MISSED",
    }
    assert not any("target missed" in entry.flags for entry in made.entries)  # which is no disturbance
    for page in (report.text(made), report.html(made), report.markdown(made)):
        assert made.missed["toy-missed"] in page
    passes = next(line for line in made.statistics if line.name == "Bench Passes")
    assert "0 of 3 jobs were measured" in passes.definition  # of this suite, of which each job was run once


def test_a_failed_copy_leaves_the_others_alone_and_is_tried_again(
    run_toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*arguments: object) -> None:
        raise CgroupReadOnly("make", "/sys/fs/cgroup/cpuset", hint="it is mounted read-only")

    monkeypatch.setattr(_partition, "GroupTree", read_only)
    path = jobs_file(tmp_path, "toy-suite-crash", "toy-suite-nan")
    done = run_toy(path, tmp_path / "out", copies="2")
    assert {run.isolation.level for run in done.runs} == {"affinity"}
    assert "read-only" in done.runs[0].isolation.details["reasons"][0]
    said = {(run.job, run.share): run.verdict.status for run in done.runs}
    assert said["toy-suite-crash", "0"] == "failed"
    assert said["toy-suite-crash", "1"] == "ok"
    summary = done.root / "summary.txt"
    assert "[ 1/ 2][ 1/ 2] FAILED |" in summary.read_text()
    assert [path.name for path in (done.root / "mila" / "0").iterdir()] == ["toys_1.json"]

    failed = {path.name for path in (done.root / "mila").glob("*.json")}
    assert "toys.toy-suite-crash.R0.D0.FAIL.json" in failed
    again = run_toy(path, done.root, resume=True)  # a NaN would be one again
    assert len(again.runs) == 4
    names = {f"toys.{run.job}.R0.D{run.share}.FAIL.json" for run in again.runs if not run.ok}
    assert {path.name for path in (done.root / "mila").glob("*.json")} == names
    assert [line[:7] for line in summary.read_text().splitlines()] == ["[ 1/ 2]", "[ 2/ 2]", "Total T", "[ 1/ 2]"]


def test_a_damaged_record_is_made_again(run_toy, tmp_path: Path) -> None:
    path = jobs_file(tmp_path, "toy-nap")
    done = run_toy(path, tmp_path / "out", copies="2")
    (done.root / "runs" / "toy-nap-r0-d1" / "run.json").write_text('{"version": 2, "id')
    again = run_toy(path, done.root, resume=True)
    assert again.ok
    assert [run.share for run in again.runs] == ["0", "1"]
    ids = {run.id for run in done.runs} & {run.id for run in again.runs}
    assert not ids  # the copies of a job belong together


def test_a_suite_of_an_earlier_version_is_continued(run_toy, tmp_path: Path) -> None:
    path = jobs_file(tmp_path, "toy-nap")
    out = run_toy(path, tmp_path / "out", copies="1", repeat=2).root
    state = json.loads((out / SUITE_FILE).read_text())
    for name in ("id", "format", "sum"):
        del state[name]
    (out / SUITE_FILE).write_text(json.dumps({**state, "schema": 1}))
    kept = out / "runs" / "toy-nap-r0-d0" / "run.json"
    run = read_run(kept)
    old = {
        "schema": 1, "suite": "toys", "job": "toy-nap", "repeat_index": 0, "slot": 0, "copies": 1, "scope": "student",
        "status": "ok", "failure": None, "message": "", "unit": "naps", "rate_per_s": run.metrics[0].value,
        "config": run.details["config"], "key": "toy-nap",
    }  # fmt: skip
    kept.write_text(json.dumps(old))
    (out / "runs" / "toy-nap-r1-d0" / "run.json").unlink()
    again = run_toy(path, out, resume=True)
    assert again.ok
    assert json.loads(kept.read_text()) == old  # not made again
    assert [run.repeat for run in again.runs] == [0, 1]


@pytest.mark.parametrize("pinning", ["auto", "affinity"])
def test_what_hides_is_ended_and_told(pinning: str, run_toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOY_MARKER", str(tmp_path / "hidden"))
    done = run_toy(jobs_file(tmp_path, "toy-hide"), tmp_path / "out", copies="1", pin=pinning)
    assert done.ok
    assert done.runs[0].isolation.details["survivors"] == 1
    assert "left processes behind" in done.runs[0].disturbances
    assert_ends(int((tmp_path / "hidden").read_text()))


def test_what_hangs_is_ended_when_its_time_is_over(run_toy, tmp_path: Path) -> None:
    done = run_toy(jobs_file(tmp_path, "toy-hang"), tmp_path / "out", copies="2", timeout_s=6.0)
    assert [run.verdict.failure for run in done.runs] == ["timeout", "timeout"]
    waited = re.fullmatch(r"not finished after (\d+) s", done.runs[0].verdict.message)
    assert waited
    assert int(waited[1]) >= 6


def test_a_full_disk_ends_the_suite_and_keeps_what_is_whole(run_toy, tmp_path: Path) -> None:
    path = jobs_file(tmp_path, "toy-nap", "toy-full")
    with pytest.raises(OutputError, match="cannot write"):
        run_toy(path, tmp_path / "out", copies="1")
    whole = [p.name for p in (tmp_path / "out" / "runs").iterdir() if not p.name.startswith(TEMPORARY)]
    assert whole == ["toy-nap-r0-d0"]


def test_a_job_that_cannot_be_had_is_told_and_tried_when_it_can(
    run_toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(job: str) -> None:
        raise Unavailable(f"{job} needs gymnasium", "", "pip install 'dnnsuite[rl]'")

    options = {"names": ["toy_reg"], "preset": "smoke", "copies": "1"}
    with monkeypatch.context() as patch:
        patch.setattr(jobs, "get", missing)
        done = run_toy("baselines", tmp_path / "out", **options)
    assert [run.verdict.failure for run in done.runs] == ["unavailable"]
    assert "pip install 'dnnsuite[rl]'" in done.runs[0].verdict.message
    assert "[ 1/19][ 1/ 1] FAILED |" in (done.root / "summary.txt").read_text()
    again = run_toy("baselines", tmp_path / "out", resume=True)
    assert [(run.verdict.status, run.details["number"]) for run in again.runs] == [("ok", 20)]


def test_what_is_required_and_cannot_be_had(run_toy, tmp_path: Path) -> None:
    with pytest.raises(Error, match="pinning by cgroup is required, and this machine grants affinity"):
        run_toy(jobs_file(tmp_path, "toy-nap"), tmp_path / "out", pin="affinity", require="cgroup")
    assert not (tmp_path / "out").exists()


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "dnnsuite", "run", str(folder / "toys.json"), "--plugin", "suite_toys",
               "--device", "cpu", "--copies", "1", "--out", str(folder / "out"), *options]  # fmt: skip
    environment = {**os.environ, "TOY_MARKER": str(folder / "marker")}
    return subprocess.Popen(
        command, env=environment, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def run_of(process: int) -> str:
    """The name of the partition that a worker is in."""
    words = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    return next(w for w in words if w.startswith(b"DNNSUITE_PIN_RUN=")).decode().partition("=")[2].split("/")[0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_leaves_nothing_but_what_is_whole(
    number: signal.Signals, run_toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = jobs_file(tmp_path, "toy-nap", "toy-hang")
    with start(tmp_path) as process:
        name = run_of(int(text_of(tmp_path / "marker")))
        process.send_signal(number)
        _, said = process.communicate()
    # The guard of one that was killed takes a moment.
    wait_for(lambda: not of_run(name) and not [left for left in find() if left.name.startswith(name)])
    runs = [p for p in (tmp_path / "out" / "runs").iterdir() if not p.name.startswith(TEMPORARY)]
    assert [run.name for run in runs] == ["toy-nap-r0-d0"]
    assert all(read_run(run / "run.json").ok for run in runs)
    if number == signal.SIGKILL:
        assert process.returncode == -9
    else:
        assert process.returncode == 128 + number
        assert "1 finished runs are kept" in said
        assert "--resume --out" in said
        assert json.loads((tmp_path / "out" / SUITE_FILE).read_text())["status"].startswith("interrupted by")
        assert len(list((tmp_path / "out" / "runs").iterdir())) == 1
    if number == signal.SIGINT:
        done = run_toy(path, tmp_path / "out", resume=True, timeout_s=5.0)
        assert [run.verdict.failure for run in done.runs if run.job == "toy-hang"] == ["timeout"]
        assert len((tmp_path / "out" / "summary.txt").read_text().splitlines()) == 3
