# SPDX-License-Identifier: MIT
"""Two processes under torchrun, over gloo."""

import re

import pytest
import torch

from dnnsuite import results
from dnnsuite.errors import InvalidArgument
from dnnsuite.training import load_model, read_metrics, run
from dnnsuite.training.processes import Processes
from tiny_training import experiment, net
from two_processes import forget_place, run_in_two

WORKER = """
    import os, sys
    import torch
    from dnnsuite import errors
    from dnnsuite.training import Data, run
    from tiny_training import Points, experiment

    out, rank = sys.argv[1], int(os.environ["RANK"])
    seen = {"train": [], "valid": []}

    class Watched(Points):
        def __init__(self, part, *args, **options):
            super().__init__(*args, **options)
            self.part = part

        def __getitem__(self, index):
            seen[self.part].append(index)
            return super().__getitem__(index)

    data = Data(Watched("train", 50), Watched("valid", 11, seed=2), 4, "points", {}, "points")
    plain = lambda: torch.nn.Linear(8, 4)
    trained = run(experiment(data=data, model=plain, drop_last=False), f"{out}/run", quiet=True)
    longer = experiment(data=data, model=plain, drop_last=False, epochs=3)
    resumed = run(longer, f"{out}/run", resume="auto", quiet=True)
    messages = []
    for changes, place in (({"batch_size": 9}, "odd"), ({}, "run")):
        try:
            run(experiment(**changes), f"{out}/{place}", quiet=True)
        except errors.Error as error:
            messages.append(str(error))
    torch.save({"seen": seen, "model": resumed.model.state_dict(), "messages": messages,
                "steps": trained.history}, f"{out}/{rank}.pt")
"""


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    forget_place(monkeypatch)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """What two processes left: (folder, findings of each)."""
    out = tmp_path_factory.mktemp("two")
    run_in_two(WORKER, out)
    return out, [torch.load(out / f"{rank}.pt", weights_only=True) for rank in range(2)]


def test_parameters_are_equal_and_those_of_one_process(two, tmp_path):
    _, (first, second) = two
    assert all(torch.equal(first["model"][name], second["model"][name]) for name in first["model"])
    data = experiment().data
    plain = type(data)(type(data.train)(50), data.valid, 4, "points", {}, "points")
    alone = run(
        experiment(data=plain, model=lambda: torch.nn.Linear(8, 4), drop_last=False, epochs=3),
        tmp_path / "run",
        quiet=True,
    )
    for name, value in alone.model.state_dict().items():
        torch.testing.assert_close(first["model"][name], value)


def test_no_sample_is_lost(two):
    """Three epochs of 50 in batches of 8, the last of 2; eleven to validate."""
    _, findings = two
    for part, count in (("train", 50), ("valid", 11)):
        seen = [index for each in findings for index in each["seen"][part]]
        assert sorted(seen) == sorted(list(range(count)) * 3)
        assert all(each["seen"][part] for each in findings)


def test_metrics_and_rate_are_of_all_processes(two):
    out, findings = two
    rows = read_metrics(out / "run")
    assert [row["step"] for row in rows] == [7, 14, 21]
    assert {round(row["acc1/valid"] * 11, 6) % 1 for row in rows} == {0.0}
    assert findings[0]["steps"][0]["acc1/valid"] == findings[1]["steps"][0]["acc1/valid"]
    samples = (out / "run" / "samples.csv").read_text().splitlines()[1:]
    assert sum(float(line.split(",")[4]) for line in samples) == 150  # three epochs, one of them resumed, over both
    assert re.search(r"Epoch: 3, Iteration: 6, Avg img/sec: ", (out / "run" / "train.log").read_text())


def test_the_record_and_the_checkpoint_are_as_of_one_process(two):
    out, _ = two
    (row,) = [each for each in results.load(out / "run").to_dict("records") if each["metric"] == "throughput"]
    assert (row["mode"], row["processes"]) == ("ddp", 2)
    names = torch.load(out / "run" / "checkpoint.pt", weights_only=True)["model"]
    assert list(names) == ["weight", "bias"]
    assert load_model(out / "run" / "checkpoint.pt", torch.nn.Linear(8, 4)).weight.isfinite().all()


def test_a_refusal_reaches_every_process(two):
    _, findings = two
    for each in findings:
        odd, full = each["messages"]
        assert odd == "batch_size is 9, which cannot be divided among 2 processes: use 8"
        assert "is not empty" in full


def test_alone_everything_returns_at_once():
    processes = Processes("cpu")
    assert (processes.rank, processes.world_size, processes.first) == (0, 1, True)
    assert processes.total([1.0, 2.0]) == [1.0, 2.0]
    assert processes.least(3.0) == 3.0
    assert processes.any(True)
    assert processes.gathered("x") == ["x"]
    assert processes.by_first(lambda: 7) == 7
    processes.same_buffers(net())
    processes.close()


def test_an_environment_that_names_no_place(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(InvalidArgument, match="WORLD_SIZE='two' is not a number"):
        Processes("cpu")
