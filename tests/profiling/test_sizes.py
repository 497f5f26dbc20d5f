# SPDX-License-Identifier: MIT
"""Profiles over batch sizes: a row each, also for what fails; what is there is not made again."""

import copy
import dataclasses
import json
import shutil

import pytest

from dnnsuite._runs.reading import read_runs
from dnnsuite.errors import InvalidArgument
from dnnsuite.profiling.sizes import Request, metrics, profiles, rows, table
from dnnsuite.results.monitor import rows_of_monitor

HUNGRY = """
from dnnsuite import jobs
from dnnsuite.jobs.first_workloads import *

@jobs.register("hungry")
class Hungry(jobs.get("toy_reg")):
    def step(self):
        if self.config.batch_size > 4:
            raise MemoryError("out of memory")
        super().step()
"""


@pytest.fixture(scope="module")
def request_and_out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("profiles")
    (folder / "hungry_plugin.py").write_text(HUNGRY)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        request = Request(
            "hungry", (2, 8), start_iteration=2, profile_iterations=2, plugins=("hungry_plugin",)
        ).checked()
        said = []
        results = profiles(request, folder / "out", said.append)
        again = profiles(request, folder / "out", said.append)
    return request, folder / "out", results, again, said


def test_each_batch_size_is_a_row_also_one_that_runs_out_of_memory(request_and_out):
    _, out, results, _, _ = request_and_out
    good, bad = rows(results)
    assert (good["batch_size"], good["status"]) == (2, "ok")
    assert good["rate_low"] is None or good["rate_low"] <= good["rate"]
    assert sum(value for key, value in good.items() if key.endswith("(%)")) == pytest.approx(100)
    assert bad == {"batch_size": 8, "status": "oom", "message": "out of memory"}
    assert (out / "batch_2" / "summary.txt").is_file()
    assert (out / "batch_8" / "monitor.csv").is_file()  # what was observed of a run that failed is kept
    busy = {row.metric: row for row in rows_of_monitor(out / "batch_2")}["busy"]
    assert 0 <= busy.mean <= 100
    assert not list(out.glob(".tmp-*"))


def test_what_is_there_is_not_made_again(request_and_out):
    _, _, results, again, said = request_and_out
    assert again == results
    assert sum("starts" in line for line in said) == 2


def test_each_batch_size_has_a_record_as_every_run_has(request_and_out):
    _, out, results, _, _ = request_and_out
    runs, problems = read_runs(out)
    assert problems == []
    good, bad = (run.record for run in runs)
    assert (good.kind, good.job, good.batch_size, good.ok, good.mode) == ("profile", "hungry", 2, True, "serial")
    assert good.plan_id == bad.plan_id == json.loads((out / "profiles.json").read_text())["id"]
    assert (bad.verdict.failure, bad.verdict.message) == ("oom", "out of memory")
    assert good.details["profile"] == results[0]["profile"]
    assert [metric.value for metric in good.metrics] == [r for r in [rows(results)[0]["rate"]] if r is not None]


def test_a_profile_that_is_damaged_or_of_an_earlier_version(request_and_out, tmp_path, monkeypatch):
    request, out, results, _, _ = request_and_out
    shutil.copytree(out, tmp_path / "out")
    (tmp_path / "out" / "batch_2" / "run.json").unlink()
    old = {key: value for key, value in results[0].items() if key not in ("batch_size", "directory")}
    (tmp_path / "out" / "batch_2" / "result.json").write_text(json.dumps(old))
    (tmp_path / "out" / "batch_8" / "run.json").write_text("{")
    monkeypatch.chdir(out.parent)
    said = []
    again = profiles(request, tmp_path / "out", said.append)
    assert [result["status"] for result in again] == ["ok", "failed"]
    assert [line for line in said if "starts" in line] == ["batch size 8 (2 of 2): starts"]


def test_another_request_may_not_share_the_directory(request_and_out):
    request, out, _, _, _ = request_and_out
    with pytest.raises(InvalidArgument, match=r"differ in profile_iterations, seed"):
        profiles(dataclasses.replace(request, seed=9, profile_iterations=3), out)


def test_figures_carry_units_and_definitions(request_and_out):
    _, _, results, _, _ = request_and_out
    found = metrics(results[0]).set_index("metric")
    assert found.loc["rate", "unit"].endswith("/s")
    assert found.loc["host", "unit"] == "% of a step"
    assert found["definition"].str.len().min() > 5
    assert list(table(results)["status"]) == ["ok", "oom"]


def test_use_of_the_gpus_cores_is_a_figure_of_each_batch_size(request_and_out):
    result = copy.deepcopy(request_and_out[2][0])
    result["profile"]["utilization"] = [{"core": "tensor", "pct_of_step": 20.0, "pct_of_busy": 40.0}]
    found = metrics(result).set_index("metric")
    assert found.loc["tensor_pct_of_step", ["value", "unit"]].tolist() == [20.0, "%"]
    assert found.loc["tensor_pct_of_busy", "value"] == 40.0
    assert table([result])["tensor_pct_of_busy"].tolist() == [40.0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"job": "no-such"}, "no job 'no-such'"),
        ({"batch_sizes": (2, 2)}, "names one twice"),
        ({"precision": "fp8"}, "fp8"),
        ({"metrics": "timeline|nothing"}, "'nothing'"),
        ({"device": "tpu"}, "'tpu'"),
        ({"B": -1}, "B must be 0"),
        ({"profile_iterations": 0}, "profile_iterations"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(changes, words):
    with pytest.raises(InvalidArgument, match=words):
        dataclasses.replace(Request("toy_reg", (2,)), **changes).checked()


def test_the_jobs_own_batch_size_is_the_default():
    from dnnsuite import jobs

    assert Request("toy_reg", ()).checked().batch_sizes == (jobs.get("toy_reg").defaults["batch_size"],)
