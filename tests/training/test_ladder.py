# SPDX-License-Identifier: MIT
import csv
import math

import pytest
import torch

from dnnsuite._runs.turns import Block, take_turns
from dnnsuite.errors import InvalidArgument
from dnnsuite.training import Data, Settings, find_data
from dnnsuite.training.ladder import RUNGS, Rung, climb, of_configuration, of_job, save_ladder, table
from dnnsuite.training.stepper import PHASES
from tiny_training import Points

SETTINGS = Settings(width=1, batch_size=2, data="synthetic", max_train_samples=6, num_data_workers=0)


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """What others do on the machine of the tests is not seen."""
    monkeypatch.setenv("DNNSUITE_NEIGHBOURS", "ignore")


def test_what_neighbours_disturbed_is_inconclusive_and_says_so(data, monkeypatch):
    def busy(ways, goal, baseline, **_):
        return take_turns({name: lambda i: Block(1.0, "others") for name in ways}, goal, baseline)

    monkeypatch.setattr("dnnsuite.training.ladder.take_turns_here", busy)
    rungs = climb(of_configuration(SETTINGS, data), rungs=("fp32", "+amp"), device="cpu", rounds=8, steps=1)
    assert rungs[1].verdict == "inconclusive"
    assert "others, in 8 of 8 rounds" in table(rungs)


@pytest.fixture(scope="module")
def data():
    return find_data(SETTINGS)


def test_every_rung_is_measured_in_turns_and_compared_with_the_one_below(data, tmp_path):
    told = []
    rungs = climb(
        of_configuration(SETTINGS, data),
        rungs=("fp32", "+amp", "+nhwc", "+extra"),
        device="cpu",
        rounds=8,
        steps=1,
        tell=told.append,
    )
    assert [rung.status for rung in rungs] == ["ok"] * 4
    assert math.isnan(rungs[0].ratio)
    for rung in rungs:
        assert rung.low <= rung.rate <= rung.high
        assert list(rung.phases_ms) == list(PHASES)
    for rung in rungs[1:]:
        assert rung.verdict in ("faster", "slower", "same", "inconclusive")
        assert rung.ratio_low <= rung.ratio <= rung.ratio_high
        assert rung.disturbed == ""
    assert told[-1] == "round 8 of 8"
    assert len(table(rungs).splitlines()) == 5
    save_ladder(tmp_path, rungs)
    with open(tmp_path / "ladder.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["rung"] for row in rows] == ["fp32", "+amp", "+nhwc", "+extra"]
    assert float(rows[3]["optimizer.step ms"]) == rungs[3].phases_ms["optimizer.step"]


@pytest.mark.parametrize("name", ["vit", "ppo"])  # pictures; batches that the model makes
def test_a_job_has_rungs_too(name):
    tiny = {"vit": {"layers": 1, "width": 16, "heads": 2, "patch": 16}, "ppo": {"width": 8, "moves": 16}}
    made_by = of_job(name, "quick", {**tiny[name], "batch_size": 4}, "synthetic", None)
    rungs = climb(made_by, rungs=("fp32", "+nhwc", "+extra"), device="cpu", rounds=8, steps=1)
    assert [(rung.status, rung.rate > 0) for rung in rungs] == [("ok", True)] * 3
    assert "samples/s" in table(rungs, "samples/s")


def test_a_compiler_that_fails_is_a_row(data, monkeypatch, tmp_path):
    def broken(self, *args, **kwargs):
        raise RuntimeError('no compiler "g++" here\nand much more')

    monkeypatch.setattr(torch.nn.Module, "compile", broken)
    benchmark = torch.backends.cudnn.benchmark
    rungs = climb(of_configuration(SETTINGS, data), rungs=("fp32", "+compile"), device="cpu", rounds=8, steps=1)
    assert [rung.status for rung in rungs] == ["ok", 'crash: no compiler "g++" here']
    assert math.isnan(rungs[1].rate)
    assert "no compiler" in table(rungs)
    assert torch.backends.cudnn.benchmark == benchmark
    save_ladder(tmp_path, rungs)
    assert 'crash: no compiler ""g++"" here' in (tmp_path / "ladder.csv").read_text()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rungs": ("fp32", "+apex")}, r"unknown rung '\+apex'; accepted: fp32, \+amp"),
        ({"rungs": ()}, "at least one"),
        ({"rungs": ("fp32", "fp32")}, "each once"),
        ({"rounds": 7}, "at least 8 rounds"),
    ],
)
def test_what_cannot_be_climbed(data, changes, words):
    with pytest.raises(InvalidArgument, match=words):
        climb(of_configuration(SETTINGS, data), device="cpu", **changes)


def test_data_that_a_loader_would_have_to_read():
    with pytest.raises(InvalidArgument, match="points is not in memory"):
        of_configuration(SETTINGS, Data(Points(8), Points(8), 4, "points", {}))


def test_the_rungs_are_the_tutorials():
    assert list(RUNGS) == ["fp32", "+amp", "+nhwc", "+extra", "+compile"]
    assert Rung("fp32").verdict == ""
