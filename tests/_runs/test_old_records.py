# SPDX-License-Identifier: MIT
"""Directories that earlier versions wrote are read: the ones in fixtures were made by the last of them."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from dnnsuite._files import read_json
from dnnsuite._runs.old_records import from_old
from dnnsuite._runs.reading import read_run, read_runs
from dnnsuite._runs.record import BadRecord, RunRecord

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "records"


def of(folder: str, job: str, **wanted: Any) -> tuple[RunRecord, dict[str, Any]]:
    """(record, what the file says) of the first run of a fixture that has these values."""
    runs, problems = read_runs(FIXTURES / folder / "runs")
    assert not problems
    for run in runs:
        if run.record.job == job and all(getattr(run.record, name) == value for name, value in wanted.items()):
            return run.record, read_json(run.directory / "run.json")
    raise AssertionError(f"no {job} with {wanted} in {folder}")


def test_every_run_of_a_workflow_is_read() -> None:
    runs, problems = read_runs(FIXTURES / "workflow" / "runs")
    assert len(runs) == 6
    assert not problems
    assert len({run.record.id for run in runs}) == 6
    assert len({run.record.plan_id for run in runs}) == 1
    assert {run.record.kind for run in runs} == {"workflow"}


def test_a_workflows_run_keeps_what_its_file_says() -> None:
    record, old = of("workflow", "toy", mode="concurrent", B=2, repeat=1)
    assert (record.plan, record.unit, record.preset, record.data) == ("toy", "naps", "quick", "none")
    assert (record.processes, record.threads, record.batch_size) == (2, 1, 4)
    assert record.seed == old["configs"][0]["seed"]
    assert record.device.type == "cpu"
    assert record.machine.cpu_model == old["machine"]["cpu_model"]
    assert record.versions["torch"] == "2.13.0+cpu"
    assert record.started.utc == old["started"].replace("+0000", ".000Z")
    whole = next(metric for metric in record.metrics if metric.name == "throughput" and metric.replica is None)
    assert whole.value == old["metrics"][0]["value"]
    assert record.samples is not None
    assert record.samples.files == ("idx0/samples.csv", "idx1/samples.csv")
    assert record.details["replicas"] == old["replicas"]
    assert record.isolation.level == "unknown"


def test_samples_of_old_runs_are_where_the_record_says() -> None:
    for folder in ("workflow", "suite"):
        for run in read_runs(FIXTURES / folder / "runs")[0]:
            if run.record.samples is None:
                assert not run.record.ok
                continue
            for file in run.record.samples.files:
                header = (run.directory / file).read_text().splitlines()[0]
                assert tuple(header.split(",")) == run.record.samples.columns


def test_a_failed_run_of_a_workflow() -> None:
    record, _ = of("workflow-failed", "toy-nan")
    assert (record.verdict.status, record.verdict.failure) == ("failed", "nan")
    assert record.metrics == ()


def test_a_suites_run_keeps_what_its_file_says() -> None:
    record, old = of("suite", "toy-nap", share="1")
    assert (record.kind, record.mode, record.B, record.copies) == ("suite", "shares", 1, 2)
    assert (record.plan, record.job_version, record.data) == ("two", old["hashes"]["job"], "none")
    assert record.isolation.level == "cgroup"
    assert record.disturbances == tuple(old["flags"])
    (metric,) = record.metrics
    assert (metric.name, metric.value, metric.unit) == ("throughput", old["rate_per_s"], "naps/s")
    assert metric.low == old["rate_interval_per_s"][0]
    assert record.details["observations"] == old["repeat"]
    assert record.details["job_metrics"] == old["metrics"]
    assert record.details["seed_unit"] == old["seed_unit"]


def test_a_job_on_the_whole_machine_has_the_share_all() -> None:
    assert of("suite", "toy-all")[0].share == "all"


def test_a_failed_run_of_a_suite_has_no_rate() -> None:
    record, _ = of("suite", "toy-suite-nan")
    assert (record.ok, record.verdict.failure, record.metrics) == (False, "nan", ())


def test_two_directories_of_one_name_stay_two(tmp_path: Path) -> None:
    for node in ("a", "b"):
        shutil.copytree(FIXTURES / "suite", tmp_path / node / "out")
    a, b = (read_runs(tmp_path / node / "out" / "runs")[0] for node in ("a", "b"))
    assert not {run.record.id for run in a} & {run.record.id for run in b}
    assert {run.record.plan_id for run in a} != {run.record.plan_id for run in b}


def test_an_id_does_not_depend_on_how_the_path_is_spelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(FIXTURES / "suite", tmp_path / "out")
    monkeypatch.chdir(tmp_path)
    relative = read_run(Path("out/runs/toy-all-r0-d0/run.json"))
    assert relative.id == read_run(tmp_path / "out/../out/runs/toy-all-r0-d0/run.json").id


@pytest.mark.parametrize(
    "change",
    [
        {"copies": "two"},
        {"repeat_index": -1},
        {"status": "perhaps"},
        {"rate_per_s": -5.0},
        {"rate_per_s": "fast"},
        {"rate_interval_per_s": 3},
        {"config": "none"},
        {"unit": None},
    ],
    ids=str,
)
def test_a_value_that_no_run_has_is_refused(change: dict[str, Any]) -> None:
    path = FIXTURES / "suite" / "runs" / "toy-nap-r0-d0" / "run.json"
    values: dict[str, Any] = {**json.loads(path.read_text()), **change}
    with pytest.raises(BadRecord):
        from_old(values, path)


@pytest.mark.parametrize("key", ["mode", "B", "repeat", "status", "unit", "metrics", "device"])
def test_a_missing_key_is_named(key: str) -> None:
    path = next((FIXTURES / "workflow" / "runs").glob("*serial*r0/run.json"))
    values: dict[str, Any] = json.loads(path.read_text())
    del values[key]
    with pytest.raises(BadRecord, match=key):
        from_old(values, path)
