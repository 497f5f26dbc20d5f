# SPDX-License-Identifier: MIT
"""Comparisons of a tiny workload by worker processes."""

import json
import shutil

import pytest

from dnnsuite import results
from dnnsuite.errors import InvalidArgument
from dnnsuite.jobs import JobConfig
from dnnsuite.jobs.trajectories import train
from dnnsuite.workflow.convergence.plan import TRAJECTORY_FILE, WAYS, trajectories


def test_an_array_trains_as_its_models_do(finished):
    assert finished.ok
    assert finished.verdict.same
    assert finished.verdict.loss < 1e-5
    assert [path.name for path in finished.files] == ["convergence.csv", "convergence.png", "verdict.json"]
    read = trajectories(finished.root)
    assert list(read) == ["serial", "control", "hfta"] == list(WAYS)
    assert all(len(each["losses"]) == 10 for each in read.values())
    state = json.loads((finished.root / "workflow.json").read_text())
    assert (state["status"], state["verdict"]["verdict"]) == ("done", "same")


def test_runs_are_runs_as_others_are(finished):
    table = results.load(finished.root)
    assert len(list(finished.root.glob("runs/*/monitor.csv"))) == 3
    assert set(table["mode"]) == set(WAYS)
    assert set(table["kind"]) == {"training"}
    assert set(table["metric"]) == {"loss/final"}
    assert table.groupby("mode").size().to_dict() == dict.fromkeys(WAYS, 3)


def test_finished_trainings_are_not_done_again(finished, compare, tmp_path):
    out = tmp_path / "again"
    shutil.copytree(finished.root, out)
    for path in (out / "runs").glob("*-hfta-*"):
        shutil.rmtree(path)
    for name in ("convergence.csv", "verdict.json"):
        (out / name).unlink()
    kept = {path.name for path in (out / "runs").iterdir()}
    report = compare(out, resume=True)
    assert report.verdict == finished.verdict
    now = {path.name for path in (out / "runs").iterdir()}
    assert kept < now
    assert len(now) == 3
    assert (out / "convergence.csv").read_bytes() == (finished.root / "convergence.csv").read_bytes()


def test_other_settings_are_refused(finished, compare):
    with pytest.raises(InvalidArgument, match="epochs is 7, was 2"):
        compare(finished.root, resume=True, epochs=7)
    (finished.root.parent / "other").mkdir(exist_ok=True)
    (finished.root.parent / "other" / "workflow.json").write_text("{}")
    with pytest.raises(InvalidArgument, match="is not a comparison of convergence"):
        compare(finished.root.parent / "other", resume=True)


def test_a_broken_operator_differs(finished, compare, tmp_path):
    """The comparison that ended well, with what the array of `broken_blobs` trains to in the place of the right one."""
    out = tmp_path / "out"
    shutil.copytree(finished.root, out)
    (run,) = out.glob("runs/*-hfta-*")
    config = JobConfig.from_dict(json.loads((run / "run.json").read_text())["details"]["config"])
    broken = train("broken_blobs", config, "hfta", finished.settings.iterations, finished.settings.iters_per_epoch)
    kept = {name: getattr(broken, name) for name in ("losses", "start", "end", "accuracy")}
    (run / TRAJECTORY_FILE).write_text(json.dumps(kept))
    report = compare(out, resume=True)
    assert not report.ok
    assert not report.verdict.same
    assert report.verdict.iteration == 0
    assert report.verdict.loss > 1e-4
    assert "blobs fp32: differs" in report.problems[0]


def test_a_training_that_fails_is_told(compare, tmp_path):
    report = compare(tmp_path / "out", timeout_s=0.01)
    assert not report.ok
    assert report.verdict is None
    assert report.problems[0].startswith("models one by one: ")
    assert report.files == []
    assert len(list((tmp_path / "out" / "runs").iterdir())) == 1  # the others would fail as well
