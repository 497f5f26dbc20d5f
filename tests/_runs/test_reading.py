# SPDX-License-Identifier: MIT
from pathlib import Path

import pytest

from dnnsuite._files import write_json
from dnnsuite._runs.reading import RUN_FILE, read_run, read_runs
from dnnsuite._runs.record import BadRecord, Device, Machine, Moment, RunRecord, Verdict, new_id


def write(folder: Path, job: str = "toy") -> Path:
    folder.mkdir(parents=True)
    record = RunRecord(
        id=new_id(), kind="workflow", plan_id="p", plan="toy", job=job, mode="serial", precision="fp32", B=1,
        repeat=0, verdict=Verdict.good(), machine=Machine(), device=Device("cpu"), started=Moment.now(), unit="naps",
    )  # fmt: skip
    write_json(folder / RUN_FILE, record.to_dict())
    return folder / RUN_FILE


def test_a_record_is_read_back(tmp_path: Path) -> None:
    assert read_run(write(tmp_path / "one", "mine")).job == "mine"


@pytest.mark.parametrize(
    "content", [None, "", "{", "[]", "3", '{"version": 2}', '{"job": "toy"}', "[" * 200_000, "\udcff"]
)
def test_a_damaged_file_is_named(content: str | None, tmp_path: Path) -> None:
    path = write(tmp_path / "one")
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(BadRecord) as caught:
        read_run(path)
    assert str(path) in str(caught.value)


def test_damaged_runs_are_named_and_left_out(tmp_path: Path) -> None:
    write(tmp_path / "runs" / "a")
    write(tmp_path / "runs" / "b").write_text("{")
    write(tmp_path / "runs" / ".tmp-c").write_text("{")
    runs, problems = read_runs(tmp_path / "runs")
    assert [run.directory.name for run in runs] == ["a"]
    assert len(problems) == 1
    assert str(tmp_path / "runs" / "b") in problems[0]


def test_a_folder_that_is_not_there_has_no_runs(tmp_path: Path) -> None:
    assert read_runs(tmp_path / "absent") == ([], [])
