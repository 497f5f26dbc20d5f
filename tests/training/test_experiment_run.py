# SPDX-License-Identifier: MIT
"""Runs in a directory: begun, killed, interrupted, resumed, refused; what they leave is read as a user reads it."""

import json
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

from dnnsuite import host, report, results
from dnnsuite._runs.failures import NotFinite
from dnnsuite.errors import Error, InvalidArgument
from dnnsuite.training import BadCheckpoint, Data, WarmupPlateau, load_model, read_metrics, run
from tiny_training import Points, experiment, net
from waiting import wait_for

SUPPORT = Path(__file__).parent.parent / "support"
# Steps that take a while, so that a signal falls between two of them.
SCRIPT = """
import sys, time
from dnnsuite.training import run
from tiny_training import Points, experiment
from dnnsuite.training import Data

class Slow(Points):
    def __getitem__(self, index):
        time.sleep(float(sys.argv[2]))
        return super().__getitem__(index)

data = Data(Slow(50, noise=0.1), Points(11, seed=2), 4, "points", {}, "points")
run(experiment(data=data, epochs=4, workers=int(sys.argv[3])), sys.argv[1], resume="auto", quiet=True)
"""


def script(out, seconds, workers=0):
    command = [sys.executable, "-c", SCRIPT, str(out), str(seconds), str(workers)]
    path = os.pathsep.join([str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.PIPE, text=True)


def wait_for_line(out, line):
    """Until the log of a run has a line."""
    log = out / "train.log"
    wait_for(lambda: log.is_file() and line in log.read_text())


def smoothed(outputs, labels):
    return torch.nn.functional.cross_entropy(outputs, labels, label_smoothing=0.5)


def other_labels():
    data = Points(50, noise=0.1)
    data.labels = 3 - data.labels
    return Data(data, Points(11, seed=2), 4, "points", {}, "points")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of four epochs that nothing disturbed."""
    out = tmp_path_factory.mktemp("whole") / "run"
    run(experiment(epochs=4), out, quiet=True)
    return out


def same(ours, theirs):
    assert torch.load(ours, weights_only=True)["position"]["step"] == 24
    found, expected = (torch.load(each, weights_only=True)["model"] for each in (ours, theirs))
    return all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize(
    ("number", "workers", "line", "status"),
    [(signal.SIGKILL, 0, "Epoch: 3, Iteration: 2", -signal.SIGKILL), (signal.SIGTERM, 1, "Epoch: 1, Iteration: 2", 1)],
)
def test_what_a_signal_ended_goes_on_to_the_same_bits(tmp_path, whole, number, workers, line, status):
    out = tmp_path / "run"
    process = script(out, 0.004, workers)
    try:
        wait_for_line(out, line)
        process.send_signal(number)
        said = process.communicate()[1]
    finally:
        process.kill()
        process.wait()
    assert process.returncode == status, said
    assert not (out / "run.json").exists()
    if number != signal.SIGKILL:  # nothing was lost
        position = torch.load(out / "checkpoint.pt", weights_only=True)["position"]
        assert position["step"] == 6 * position["epoch"] + position["iteration"]
        assert position["iteration"] > 0
    run(experiment(epochs=4), out, resume="auto", quiet=True, allow_changed=["data"])  # of another class
    assert same(out / "checkpoint.pt", whole / "checkpoint.pt")
    scores = [[row["acc1/valid"] for row in read_metrics(each)] for each in (out, whole)]
    assert scores[0] == scores[1]
    assert not list(out.glob(".tmp*"))


def test_its_record_is_read_and_reported(whole):
    table = results.load(whole)
    assert set(table["kind"]) == {"training"}
    values = dict(zip(table["metric"], table["value"], strict=True))
    assert values["throughput"] > 0
    assert values["acc1/valid"] == read_metrics(whole)[-1]["acc1/valid"]
    assert table["data"].unique().tolist() == ["points"]
    text = str(report.make([whole]))
    assert "points serial fp32 B=1" in text


def test_a_finished_run_is_not_done_again_but_goes_on_for_more_epochs(whole, tmp_path):
    out = tmp_path / "run"
    first = run(experiment(epochs=1), out, quiet=True)
    again = run(experiment(epochs=1), out, resume="auto", quiet=True)
    assert again.record == first.record
    more = run(experiment(epochs=4), out, resume="auto", quiet=True)
    assert len(more.history) == 4
    assert more.record.id != first.record.id
    assert same(out / "checkpoint.pt", whole / "checkpoint.pt")


def test_a_checkpoint_serves_elsewhere(whole, tmp_path):
    model = load_model(whole / "checkpoint.pt", net())
    assert all(each.isfinite().all() for each in model.parameters())
    found = run(experiment(epochs=5), tmp_path / "more", resume=str(whole / "checkpoint.pt"), quiet=True)
    assert [row["epoch"] for row in found.history] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("changes", "resume", "kind", "words"),
    [
        ({}, "never", InvalidArgument, "is not empty"),
        ({"seed": 5}, "auto", InvalidArgument, "made with other settings: seed is 5, was 0"),
        ({"optimizer": partial(torch.optim.SGD, lr=0.01)}, "auto", InvalidArgument, "optimizer is partial"),
        ({"loss": smoothed}, "auto", InvalidArgument, "loss"),
        (
            {"data": other_labels()},
            "auto",
            InvalidArgument,
            "data: data.labels is [^,]*, was [^,]*; .*--allow-changed data",
        ),
        ({"schedule": lambda o, n: WarmupPlateau(o, 3)}, "auto", InvalidArgument, "schedule: "),
        ({"model": lambda: torch.nn.Linear(8, 4)}, "auto", BadCheckpoint, "of another model"),
        ({}, "nowhere.pt", InvalidArgument, "--resume nowhere.pt: no such file"),
    ],
)
def test_what_cannot_be_resumed_stays_as_it_was(whole, tmp_path, changes, resume, kind, words):
    out = whole if resume != "nowhere.pt" else tmp_path / "new"
    before = {path.name: path.read_bytes() for path in whole.iterdir() if path.is_file()}
    with pytest.raises(kind, match=words):
        run(experiment(epochs=9, **changes), out, resume=resume, quiet=True)
    after = {path.name: path.read_bytes() for path in whole.iterdir() if path.is_file()}
    assert {**after, "train.log": before["train.log"]} == before


def test_a_run_that_lost_its_file_goes_on_from_its_checkpoint_elsewhere(whole, tmp_path):
    copied = tmp_path / "copied"
    shutil.copytree(whole, copied)
    (copied / "training.json").unlink()
    with pytest.raises(InvalidArgument, match=rf"with --resume {copied}/checkpoint.pt and another --out"):
        run(experiment(), copied, resume="auto", quiet=True)


def test_a_change_that_is_allowed_is_made_and_the_record_says_so(tmp_path):
    """A smaller rate from epoch 3 on: weights are those of a loop that lowers it then."""
    out = tmp_path / "run"
    run(experiment(epochs=2), out, quiet=True)
    lower = {"optimizer": partial(torch.optim.SGD, lr=0.001, momentum=0.9), "epochs": 4}
    found = run(experiment(**lower), out, resume="auto", quiet=True, allow_changed=["optimizer"])
    assert [row["learning_rate"] for row in found.history] == [0.1, 0.1, 0.001, 0.001]

    class Lowered:
        """The rates of both, in one run."""

        def __init__(self, optimizer, steps):
            self.optimizer = optimizer

        def begin_epoch(self, epoch):
            self.optimizer.param_groups[0]["lr"] = 0.1 if epoch < 2 else 0.001

        def begin_step(self, step):
            pass

        def end_epoch(self, epoch, loss):
            pass

        def state_dict(self):
            return {}

    whole = run(experiment(epochs=4, schedule=Lowered), tmp_path / "whole", quiet=True)
    for ours, theirs in zip(found.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert "optimizer" in found.record.changed
    assert "optimizer" in results.load(out)["changed"].iloc[0]
    other = experiment(optimizer=partial(torch.optim.Adam, lr=0.01), epochs=5)
    again = run(other, out, resume="auto", quiet=True, allow_changed=["optimizer"])
    assert again.history[-1]["learning_rate"] == 0.01


def test_nan_is_recorded_as_a_failure(tmp_path):
    class Bad(Points):
        def __getitem__(self, index):
            return super().__getitem__(index)[0] * torch.nan, self.labels[index]

    data = experiment().data
    bad = experiment(data=type(data)(Bad(50), data.valid, 4, "bad", {}))
    with pytest.raises(NotFinite):
        run(bad, tmp_path / "run", quiet=True)
    (row,) = results.load(tmp_path / "run").to_dict("records")
    assert (row["status"], row["failure"]) == ("failed", "nan")


def test_memory_that_runs_out_is_one_sentence_and_recorded(tmp_path):
    class Huge(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) + torch.empty(1 << 60)[:4]

    with pytest.raises(Error, match="memory ran out with batch_size 8 in step 0"):
        run(experiment(model=lambda: Huge(8, 4)), tmp_path / "run", quiet=True)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["verdict"]["failure"] == "oom"


def test_a_second_process_is_kept_out(tmp_path):
    seen = []

    def made(kind):
        return experiment()

    class Nosy(torch.nn.Linear):
        def forward(self, x):
            if not seen:
                seen.append(1)
                with pytest.raises(Error, match="another process is at work"):
                    run(made, tmp_path / "run", resume="auto", quiet=True)
            return super().forward(x)

    run(experiment(model=lambda: Nosy(8, 4), epochs=1), tmp_path / "run", quiet=True)
    assert seen


@pytest.mark.parametrize("units", [True, False])
def test_a_precision_that_the_cpu_has_no_units_for_is_said_to_be_slower(tmp_path, monkeypatch, units):
    monkeypatch.setattr(host, "computes_in", lambda precision: units)
    run(experiment(epochs=1, precision="bf16"), tmp_path / "out", quiet=True)
    assert ("bf16 is slower than fp32" in (tmp_path / "out" / "train.log").read_text()) == (not units)
