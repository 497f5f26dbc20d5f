# SPDX-License-Identifier: MIT
"""A sweep on disk: what is kept, killed at any moment, continued, and refused. `DNNSUITE_KILLS=100` for every write."""

import functools
import json
import math
import multiprocessing
import os
import signal
import subprocess
import time

import pytest
import torch

import dnnsuite
from dnnsuite import results
from dnnsuite.errors import InvalidArgument
from dnnsuite.tuning import PBT, Choice, LogUniform, Random, devices
from dnnsuite.tuning.engine import Engine
from dying_writes import in_child
from small_sweep import ALGORITHMS, run, undisturbed

KILLS = int(os.environ.get("DNNSUITE_KILLS", "2"))


class Stop(Exception):
    """End of a sweep at a moment of the test's choice."""


class After:
    """A callback that ends the sweep after some epochs."""

    def __init__(self, epochs):
        self.left = epochs

    def __call__(self, event):
        self.left -= event.kind == "epoch"
        if self.left == 0:
            raise Stop


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_a_sweep_that_ended_early_goes_on_to_the_same_history(tmp_path, name):
    whole = undisturbed(name)
    ended = tmp_path / "ended"
    with pytest.raises(Stop):
        run(ended, name, [After(4)])
    with pytest.raises(Stop):
        run(ended, name, [After(2)], resume=True)
    sweep = run(ended, name, resume=True, width=2)
    assert sweep.history.equals(whole.history)
    assert sweep.table.drop(columns="seconds").equals(whole.table.drop(columns="seconds"))
    for key, value in whole.best_state_dict.items():
        assert torch.equal(value, sweep.best_state_dict[key])
    again = run(ended, name, resume=True)
    assert again.history.equals(whole.history)
    assert again.epochs == whole.epochs


def test_the_directory_is_one_that_results_load_reads(tmp_path):
    sweep = run(tmp_path / "out")
    table = results.load(tmp_path / "out")
    assert set(table["kind"]) == {"trial"}
    assert len(table) == len(sweep.table)
    assert table["value"].min() == sweep.best_value
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"sweep.json", "best.pt", "trials.csv", "history.csv", "epochs.csv", "trajectory.csv", "runs"} <= names
    columns = (tmp_path / "out" / "history.csv").read_text().splitlines()[0].split(",")
    assert columns[:6] == ["id", "early_stop", "runtime", "iterations", "params.lr", "params.dropout"]


@pytest.mark.parametrize("change", [{"epochs": 9}, {"seed": 7}, {"metric": "acc"}, {"name": "random"}])
def test_a_directory_of_another_sweep_is_refused(tmp_path, change):
    run(tmp_path / "out", width=8)
    with pytest.raises(InvalidArgument, match="other settings"):
        run(tmp_path / "out", resume=True, **change)
    with pytest.raises(InvalidArgument, match="not empty"):
        run(tmp_path / "out")


def small(config):
    return torch.nn.Linear(4, 2)


def large(config):
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))


def smooth(model, x, y):
    return torch.nn.functional.cross_entropy(model(x), y, label_smoothing=0.9)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("train", lambda x, y: (x[:56], 1 - y[:56])),
        ("evaluate", lambda x, y: (x[56:], 1 - y[56:])),
        ("make_model", lambda x, y: large),
        ("loss", lambda x, y: smooth),
        ("measure", lambda x, y: lambda m, a, b: {"loss": 2 * smooth(m, a, b)}),
        ("autocast", lambda x, y: torch.bfloat16),
        ("optimizer", lambda x, y: "SGD"),
        ("space", lambda x, y: {"lr": [0.2, 0.03, 0.01]}),
    ],
)
def test_what_decides_the_numbers_is_the_same_or_the_records_say_what_differs(tmp_path, task, name, change):
    x, y = (torch.cat(parts) for parts in zip(task.train, task.valid, strict=True))
    given = {
        "make_model": small, "space": {"lr": [0.1, 0.03, 0.01]}, "train": (x[:56], y[:56]), "batch_size": 16,
        "evaluate": (x[56:], y[56:]), "epochs": 2, "mode": "serial", "quiet": True, "threads": 1,
        "out": tmp_path / "out",
    }  # fmt: skip
    with pytest.raises(Stop):
        dnnsuite.sweep(**given, callbacks=[After(3)])
    before = [path.read_bytes() for path in sorted((tmp_path / "out").rglob("*.json"))]
    changed = {**given, name: change(x, y)}
    with pytest.raises(InvalidArgument, match=rf"made with other settings: {name}.*--allow-changed {name}"):
        dnnsuite.sweep(**changed, resume=True)
    assert [path.read_bytes() for path in sorted((tmp_path / "out").rglob("*.json"))] == before
    if name == "space":
        return  # of which the first trials are
    sweep = dnnsuite.sweep(**changed, resume=True, allow_changed=[name])
    assert [name in told for told in sweep.table["changed"]] == [False, True, True]
    assert name in sweep.changed
    table = results.load(tmp_path / "out").drop_duplicates("run").sort_values("run")
    assert [name in changed for changed in table["changed"]] == [False, True, True]


class Acting(torch.nn.Module):
    def __init__(self, act):
        super().__init__()
        self.a, self.act = torch.nn.Linear(4, 2), act

    def forward(self, x):
        return self.act(self.a(x))


def test_values_that_json_has_not_survive_a_resume(tmp_path, task):
    space = {"max_grad_norm": [1.0, float("inf")], "sizes": Choice((4, 2), (8, 2)), "act": [torch.relu, torch.tanh]}
    kinds = []

    def model(config):
        kinds.append(type(config["sizes"]))
        return Acting(config["act"])

    def sweep(**more):
        return dnnsuite.sweep(
            model, space, task.train, batch_size=16, epochs=2, quiet=True, threads=1, out=tmp_path / "out", **more
        )

    with pytest.raises(Stop):
        sweep(callbacks=[After(9)])
    assert set(sweep(resume=True).table["status"]) == {"done"}
    assert set(kinds) == {tuple}


@pytest.mark.parametrize(
    ("name", "may_lose_s"), [("hyperband", 0.0), ("hyperband", 0.02), ("pbt", 0.0), ("pbt", 0.02), ("pbt", 1.0)]
)
def test_a_kill_at_any_write_leaves_what_goes_on_to_the_same_sweep(tmp_path, monkeypatch, name, may_lose_s):
    whole = undisturbed(name)
    monkeypatch.setattr(devices, "Engine", functools.partial(Engine, may_lose_s=may_lose_s))
    writes = in_child(lambda: run(tmp_path / "counted", name))
    for number in range(1, writes + 1, max(1, writes // KILLS)):
        out = tmp_path / str(number)
        ended = in_child(lambda out=out: run(out, name), number)
        assert ended is None or (may_lose_s and ended < number)  # a faster run saves less often
        sweep = run(out, name, resume=(out / "sweep.json").is_file())
        assert sweep.history.equals(whole.history), number
        assert sweep.table.drop(columns="seconds").equals(whole.table.drop(columns="seconds")), number
        best = torch.load(out / "best.pt", weights_only=True)
        assert tuple(best["key"][1:]) == (whole.best_trial, whole.trials[whole.best_trial].best[1]), number
        assert len(results.load(out).drop_duplicates("run")) == len(whole.table), number
        left = [path for path in out.rglob("*") if path.is_file() and path.name not in KEPT]
        assert left == [], number


def test_a_member_whose_model_could_not_be_made_as_a_copy_is_no_reason_to_refuse_a_resume(tmp_path, task):
    made = []

    def model(config):
        made.append(config["lr"])
        if len(set(made)) > 4:  # that of the first copy
            raise ValueError("no such model")
        return small(config)

    def sweep(**more):
        return dnnsuite.sweep(
            model, {"lr": LogUniform(1e-3, 0.1)}, task.train, batch_size=16, evaluate=task.valid, epochs=6, width=4,
            algorithm=PBT(4, resample=0.0), seed=2, quiet=True, threads=1, out=tmp_path / "out", **more,
        )  # fmt: skip

    whole = sweep()
    assert "failed" in set(whole.table["status"])
    made.clear()
    assert sweep(resume=True).table.drop(columns="seconds").equals(whole.table.drop(columns="seconds"))


KEPT = ("sweep.json", "trials.jsonl", "best.pt", "trials.csv", "epochs.csv", "history.csv", "trajectory.csv", ".lock")


def test_damaged_files_are_made_again(tmp_path):
    whole = undisturbed()
    with pytest.raises(Stop):
        run(tmp_path / "out", callbacks=[After(4)])
    log = tmp_path / "out" / "runs" / "trials.jsonl"
    lines = log.read_text().splitlines()
    log.write_text("".join(f"{line}\n" for line in ["{", *lines[1:], "", "[]"]))
    (tmp_path / "out" / "best.pt").write_bytes(b"nothing")
    assert run(tmp_path / "out", resume=True).history.equals(whole.history)


def test_killed_at_any_moment(tmp_path):
    whole = undisturbed()
    out = tmp_path / "out"
    process = multiprocessing.get_context("fork").Process(target=run, args=(out,))
    process.start()
    while process.is_alive() and not list(out.glob("runs/trials.jsonl")):
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert run(out, resume=True).history.equals(whole.history)


def dead_process() -> int:
    """Number of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


@pytest.mark.parametrize("name", ["hyperband", "pbt"])
def test_killed_between_a_state_and_the_record_that_tells_of_it(tmp_path, name):
    whole = undisturbed(name)
    out = tmp_path / "out"
    with pytest.raises(Stop):
        run(out, name, callbacks=[After(9)])
    for folder in out.glob("runs/trial-*"):
        states = {int(path.stem.split("-")[1]): path for path in folder.glob("state-*.pt")}
        last = max(states, default=0)
        if last:  # a state of a rung that no record has, and half of another
            (folder / f"state-{last + 1}.pt").write_bytes(states[last].read_bytes())
            (folder / f".tmp-{dead_process()}-state-{last}.pt").write_bytes(b"half of")
    sweep = run(out, name, resume=True)
    assert sweep.history.equals(whole.history)
    assert [path.name for path in out.glob("runs/*")] == ["trials.jsonl"]


@pytest.mark.parametrize(
    "edit",
    [
        lambda record: record["details"]["history"][0].update(loss=0.0),
        lambda record: record["details"]["history"][0].update(loss=math.nan),
        lambda record: record["details"]["history"][0].pop("loss"),
        lambda record: record["details"]["history"].append(record["details"]["history"][0]),
        lambda record: record["details"].update(status="failed"),
        lambda record: record["details"].update(trial=1),
        lambda record: record["metrics"][0].update(value=0.0),
        lambda record: record.update(run="trial-00001"),
        lambda record: record.update(sum="0"),
    ],
)
def test_a_trial_of_which_the_record_was_edited_trains_again(tmp_path, edit):
    with pytest.raises(Stop):
        run(tmp_path / "out", "random", [After(9)])
    path = tmp_path / "out" / "runs" / "trials.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    edit(record := json.loads(lines[0]))
    path.write_text("".join([json.dumps(record) + "\n", *lines[1:]]))
    problems = results.load(tmp_path / "out").attrs["problems"]
    assert [problem.split(":")[1].strip() for problem in problems] == [f"{path}, line 1"]
    assert run(tmp_path / "out", "random", resume=True).history.equals(undisturbed("random").history)


class Mine(Random):
    """A search of a user's own."""

    order = 1

    def next(self):
        return super().next() if self.order else None


def test_a_search_of_a_users_own_is_compared_by_its_code(tmp_path, monkeypatch):
    with pytest.raises(Stop):
        run(tmp_path / "out", callbacks=[After(2)], algorithm=Mine(3))
    monkeypatch.setattr(Mine, "order", 2)
    with pytest.raises(InvalidArgument, match="search is class"):
        run(tmp_path / "out", resume=True, algorithm=Mine(3))


def test_records_of_an_earlier_version_are_refused(tmp_path):
    whole = run(tmp_path / "out", "hyperband")
    folder = tmp_path / "out" / "runs" / "trial-00000"
    folder.mkdir()
    (folder / "run.json").write_text("{}")
    with pytest.raises(InvalidArgument, match="earlier version"):
        run(tmp_path / "out", "hyperband", resume=True)
    (folder / "run.json").unlink()
    assert run(tmp_path / "out", "hyperband", resume=True).history.equals(whole.history)
    assert len(results.load(tmp_path / "out")) == len(whole.table)
