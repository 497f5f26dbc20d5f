# SPDX-License-Identifier: MIT
import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from dnnsuite import results
from dnnsuite._runs.folder import write_run as write_run_file
from dnnsuite._runs.record import Metric
from dnnsuite.errors import Error, InvalidArgument
from result_tables import FIXTURES, a_record, write_record, write_run


def test_load_is_tidy(tmp_path: Path) -> None:
    write_run(tmp_path)
    write_run(tmp_path, "hfta", 4, repeat=1, value=None)
    (tmp_path / "runs" / ".tmp-20261121-000000-toy-hfta-B2-fp32-r0").mkdir()
    loaded = results.load(tmp_path)
    assert tuple(loaded.columns) == results.COLUMNS
    assert len(loaded) == 3
    assert loaded["replica"].isna().tolist() == [True, False, True]
    assert loaded["status"].tolist() == ["ok", "ok", "failed"]
    pd.testing.assert_frame_equal(loaded, results.load(tmp_path / "runs"))


def test_the_first_columns_are_those_of_the_first_version() -> None:
    old = pd.read_csv(FIXTURES / "workflow" / "results.csv", nrows=0)
    assert list(results.COLUMNS[: len(old.columns)]) == list(old.columns)


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"job": "toy"}', "[" * 100_000])
def test_a_damaged_record_is_named_and_left_out(content: str | None, tmp_path: Path) -> None:
    write_run(tmp_path, repeat=1)
    record = write_run(tmp_path) / "run.json"
    record.unlink() if content is None else record.write_text(content)
    loaded = results.load(tmp_path)
    assert loaded["repeat"].unique().tolist() == [1]
    (problem,) = loaded.attrs["problems"]
    assert problem.startswith("skipped: ")
    assert str(record) in problem


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"job": "toy"}'])
def test_nothing_but_damage_is_an_error_that_names_it(content: str | None, tmp_path: Path) -> None:
    record = write_run(tmp_path) / "run.json"
    record.unlink() if content is None else record.write_text(content)
    with pytest.raises(Error, match=r"no finished runs.*1 skipped: .*run\.json"):
        results.load(tmp_path)


def test_a_record_that_was_edited_is_named_and_left_out(tmp_path: Path) -> None:
    folders = [tmp_path / "runs" / name for name in "ab"]
    for folder in folders:
        folder.mkdir(parents=True)
        write_run_file(folder, a_record(folder.name))
    record = folders[0] / "run.json"
    edited = record.read_text().replace('"value": 100.0', '"value": 900.0')
    record.write_text(edited)
    loaded = results.load(tmp_path)
    assert loaded["value"].tolist() == [100.0]
    (problem,) = loaded.attrs["problems"]
    assert problem.startswith(f"skipped: {record}: it was changed after it was written")
    values = json.loads(edited)
    del values["sum"]  # which takes it as it is
    record.write_text(json.dumps(values, indent=4))
    assert results.load(tmp_path)["value"].tolist() == [900.0, 100.0]


def test_nothing_to_load(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="no finished runs"):
        results.load(tmp_path)
    with pytest.raises(InvalidArgument, match="no such directory"):
        results.load(tmp_path / "absent")
    with pytest.raises(InvalidArgument, match="no directory"):
        results.load()


def test_any_mixture_of_directories_is_one_table(tmp_path: Path) -> None:
    write_record(tmp_path / "trial", a_record("new", kind="trial", plan_id="sweep"))
    one = next((FIXTURES / "workflow-failed" / "runs").iterdir())
    loaded = results.load(FIXTURES / "workflow", FIXTURES / "suite", one, tmp_path / "trial")
    runs = loaded.drop_duplicates("run_id")
    assert runs["kind"].value_counts().to_dict() == {"workflow": 7, "suite": 5, "trial": 1}
    assert (loaded.attrs["problems"], loaded.attrs["notes"]) == ([], [])


def test_a_folder_of_outputs_is_all_of_them() -> None:
    everything = results.load(FIXTURES)
    assert everything["run_id"].nunique() == 12
    assert everything["plan_id"].nunique() == 3


def test_columns_of_a_record(tmp_path: Path) -> None:
    write_record(tmp_path, a_record("one", disturbances=("throttled", "contended"), seed=7, commit="abc"))
    row = results.load(tmp_path).iloc[0].to_dict()
    wanted = {
        "run_id": "one", "plan_id": "plan", "plan": "toy", "hostname": "node", "cpu_model": "A processor", "cpus": 2,
        "isolation": "affinity", "torch": "2.13.0+cpu", "threads": 1, "batch_size": 4, "data": "none",
        "preset": "quick", "job_version": "1", "disturbances": "throttled; contended", "seed": 7, "commit": "abc",
        "item": "naps", "driver": "570", "started": "2026-11-22T00:00:00.000Z", "plan_path": str(tmp_path),
    }  # fmt: skip
    assert {name: row[name] for name in wanted} == wanted


def test_two_directories_of_one_name_stay_two(tmp_path: Path) -> None:
    for node in ("nodeA", "nodeB"):
        shutil.copytree(FIXTURES / "suite", tmp_path / node / "out")
    loaded = results.load(tmp_path / "nodeA" / "out", tmp_path / "nodeB" / "out")
    assert (loaded["run_id"].nunique(), loaded["plan_id"].nunique(), loaded["run"].nunique()) == (10, 2, 5)


def test_a_copied_directory_is_counted_once(tmp_path: Path) -> None:
    write_record(tmp_path / "out", a_record("one"))
    write_record(tmp_path / "out", a_record("two", repeat=1))
    shutil.copytree(tmp_path / "out", tmp_path / "copy")
    apart = results.load(tmp_path / "out", tmp_path / "copy")
    assert len(apart) == 2
    assert apart.attrs["notes"] == [f"2 runs in {tmp_path / 'copy'} were read already under the same id: counted once"]
    together = results.load(tmp_path)
    assert len(together) == 2
    assert len(together.attrs["notes"]) == 2


def test_a_directory_given_twice_is_counted_once() -> None:
    twice = results.load(FIXTURES / "suite", FIXTURES / "suite")
    assert len(twice) == len(results.load(FIXTURES / "suite"))
    assert len(twice.attrs["notes"]) == 1


def test_a_link_that_leads_back_ends(tmp_path: Path) -> None:
    write_run(tmp_path / "out")
    (tmp_path / "out" / "again").symlink_to(tmp_path, target_is_directory=True)
    assert results.load(tmp_path)["run_id"].nunique() == 1


def test_a_suite_of_another_name_is_left_out() -> None:
    assert set(results.load(FIXTURES, name="two")["kind"]) == {"suite"}
    with pytest.raises(InvalidArgument, match="no finished runs of 'fast'"):
        results.load(FIXTURES, name="fast")


def test_the_saved_table_stands_in_for_runs_that_are_gone(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        shutil.copy(FIXTURES / "workflow" / "results.csv", tmp_path / name)
    loaded = results.load(tmp_path / "a")
    assert set(loaded["kind"]) == {""}
    both = results.load(tmp_path / "a" / "results.csv", tmp_path / "b")
    assert both["run_id"].nunique() == 2 * loaded["run_id"].nunique()


def test_figures_of_replicas_have_rows_of_their_own(tmp_path: Path) -> None:
    metrics = (Metric("throughput", 3.0, "naps/s"), Metric("throughput", 1.0, "naps/s", replica=1))
    write_record(tmp_path, a_record("one", metrics=metrics))
    assert results.load(tmp_path)["replica"].astype("object").where(lambda x: x.notna(), None).tolist() == [None, 1]


def test_a_suites_record_without_the_originals_unit_is_damaged(tmp_path: Path) -> None:
    folder = write_record(tmp_path, a_record("one", kind="suite", details={"seed_unit": {"name": "x", "items": 0}}))
    write_record(tmp_path, a_record("two", kind="suite", details={"seed_unit": {"name": "x", "items": 2}}))
    loaded = results.load(tmp_path)
    assert loaded["seed_rate"].tolist() == [50.0]
    assert loaded.attrs["problems"] == [f"skipped: {folder}: seed_unit has 0.0 items: not a positive number"]


def test_a_run_of_a_workflow_may_be_read_while_others_are_at_work(tmp_path: Path) -> None:
    write_run(tmp_path)
    half = tmp_path / "runs" / ".tmp-x"
    half.mkdir()
    (half / "run.json").write_text(json.dumps({"job": "toy"}))
    loaded = results.load(tmp_path)
    assert loaded["run_id"].nunique() == 1
    assert loaded.attrs["problems"] == []
