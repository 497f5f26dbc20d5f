# SPDX-License-Identifier: MIT
from typing import Any

import pandas as pd
import pytest

from dnnsuite import results
from dnnsuite.results.pool import CONDITIONS, UNKNOWN, conditions, measured, reasons, refuse_unlike, whole_runs
from dnnsuite.results.table import Row, frame_of

ALIKE: dict[str, Any] = {
    "job": "vae", "mode": "shares", "precision": "fp32", "value": 1.0, "kind": "suite", "job_version": "1",
    "item": "images", "device": "cpu", "preset": "quick", "data": "none", "batch_size": 4, "threads": 1,
    "isolation": "cgroup", "feed": "memory", "cpu_model": "EPYC", "cpus": 2, "torch": "2.13.0+cpu",
}  # fmt: skip

# condition → a change that makes two runs unlike in it
UNLIKE: dict[str, dict[str, Any]] = {
    "kind": {"kind": "hfta"},
    "job version": {"job_version": "2"},
    "unit": {"item": "tokens"},
    "device": {"device": "cuda"},
    "precision": {"precision": "bf16"},
    "preset": {"preset": "smoke"},
    "data": {"data": "synthetic"},
    "settings": {"changed": "lr=1"},
    "batches from": {"feed": "loader"},
    "skipped steps": {"skipped_steps": 0.5},
    "page cache": {"page_cache": "cold"},
    "batch size": {"batch_size": 8},
    "copies": {"copies": 2},
    "threads": {"threads": 2},
    "isolation": {"isolation": "affinity"},
    "processor": {"cpus": 4},
    "GPUs": {"gpus": "A GPU"},
    "torch": {"torch": "2.14.0+cpu"},
}


def runs(*changes: dict[str, Any]) -> pd.DataFrame:
    return frame_of(
        Row(**{**ALIKE, "run_id": str(i), "path": f"out/{i}", **change}) for i, change in enumerate(changes)
    )


def test_copies_with_noise_of_their_own_are_alike_and_an_unrecorded_feed_proves_nothing() -> None:
    noise = [{"data": f"synthetic: uniform noise, seed {seed}"} for seed in (100, 200)]
    assert reasons(runs(*noise)) == []
    assert reasons(runs({}, {"feed": ""})) == []


def test_a_run_counts_if_all_its_copies_have_a_record_and_ended_well() -> None:
    copies = [{"share": str(i), "copies": 2, "repeat": run} for run in range(3) for i in range(2)]
    copies[3] |= {"status": "failed", "value": float("nan")}
    table = runs(*copies[:5], {"kind": "workflow", "copies": 2})
    assert whole_runs(table, table["status"] == "ok").tolist() == [True, True, False, False, False, True]
    assert measured(table)["path"].tolist() == ["out/0", "out/1", "out/5"]


def test_variants_of_a_job_are_not_pooled() -> None:
    table = runs({"variant": "number=2", "job_version": "1"}, {"variant": "number=4", "job_version": "2"})
    assert reasons(table) == []


def test_every_condition_is_tried_here() -> None:
    assert UNLIKE.keys() == CONDITIONS.keys()


@pytest.mark.parametrize("condition", UNLIKE)
def test_runs_that_differ_in_one_are_not_pooled(condition: str) -> None:
    others = [{**UNLIKE[condition], "plan_id": "b", "share": share} for share in ("0", "1")]
    table = runs({}, *others[: UNLIKE[condition].get("copies", 1)])
    (reason,) = reasons(table, ("job",))
    assert reason.condition == condition
    assert sorted(reason.values.values()) == ["out/0", "out/1"]
    with pytest.raises(results.UnlikeRuns, match=f"vae: {condition} differs: .* in out/"):
        refuse_unlike(table, ("job",))
    assert reasons(table, ("job",), ignoring=(condition,)) == []


@pytest.mark.parametrize(
    "change",
    [{"hostname": "b"}, {"repeat": 3}, {"seed": 9}, {"plan_id": "b"}, {"torch": "2.13.1+cu130"}, {"share": "1"}],
    ids=str,
)
def test_what_repeats_may_differ_in(change: dict[str, Any]) -> None:
    assert reasons(runs({}, change), ("job",)) == []


def test_cells_and_jobs_may_differ_among_themselves() -> None:
    assert reasons(runs({}, {"job": "reso", "item": "tokens"}), ("job",)) == []
    assert reasons(runs({}, {"mode": "hfta", "threads": 2}, {"B": 4, "copies": 2})) == []


def test_failures_do_not_count() -> None:
    table = runs({}, {"status": "failed", "failure": "oom", "cpu_model": "Xeon", "value": float("nan")})
    assert reasons(table) == []
    assert len(measured(table)) == 1


def test_an_unknown_condition_is_not_the_same_as_a_known_one() -> None:
    assert [reason.condition for reason in reasons(runs({}, {"isolation": ""}))] == ["isolation"]
    assert reasons(runs({"isolation": ""}, {"isolation": ""})) == []


def test_conditions_of_a_run() -> None:
    found = conditions(runs({}).to_dict("records")[0])  # type: ignore[arg-type]
    assert found["processor"] == "EPYC, 2 CPUs"
    assert found["torch"] == "2.13"
    assert found["GPUs"] == "none"
    nothing = conditions(frame_of([Row(job="x")]).to_dict("records")[0])  # type: ignore[arg-type]
    assert {name for name, value in nothing.items() if value != UNKNOWN} == {"copies"}


def test_more_reasons_are_counted() -> None:
    with pytest.raises(results.UnlikeRuns, match=r"\(and 1 more\); report on them apart"):
        refuse_unlike(runs({}, {"threads": 2, "device": "cuda"}))
