# SPDX-License-Identifier: MIT
"""The benchmark of a whole sweep, on less data."""

import argparse

import pytest
import sweep
import torch

pytest.importorskip("sklearn")


@pytest.fixture(scope="module")
def data():
    digits = sweep.Digits.load()
    few = torch.utils.data.Subset(digits.loader.dataset, range(70))
    return sweep.Digits(torch.utils.data.DataLoader(few, sweep.BATCH), digits.x[:20], digits.y[:20])


class Scripted:
    """A way whose losses are given, by trial and epoch."""

    def __init__(self, begun, losses):
        self.held, self.losses, self.edits = [(trial, iter(losses)) for trial in begun], losses, []

    def epoch(self, data):
        return [next(values) for _, values in self.held]

    def replace(self, slot, trial):
        self.edits.append(("replace", slot, trial.number))
        self.held[slot] = trial, iter(self.losses)

    def drop(self, slots):
        self.edits.append(("drop", slots))
        self.held = [one for slot, one in enumerate(self.held) if slot not in slots]


def test_a_trial_ends_without_improvement_and_the_next_takes_its_place():
    waiting = sweep.trials()[:3]
    progress, way = sweep.Trials(waiting, 2, 9), Scripted(waiting[:2], [1.0, 0.5, 0.5, 0.5, 0.1])
    epochs = 0
    while progress.running:
        progress.end(way, way.epoch(None))
        epochs += 1
    assert way.edits == [("replace", 0, 2), ("drop", [1])]
    assert epochs == 8  # four for those that begin, four for the one that waits


def test_a_trial_has_no_more_than_so_many_epochs():
    waiting = sweep.trials()[:2]
    progress, way = sweep.Trials(waiting, 2, 3), Scripted(waiting, [4.0, 3.0, 2.0, 1.0])
    for _ in range(3):
        progress.end(way, way.epoch(None))
    assert progress.running == []


def test_the_grid_has_24_trials():
    assert len({(t.lr, t.weight_decay, t.dropout) for t in sweep.trials()}) == 24


@pytest.mark.parametrize("kind", sweep.MODELS)
def test_the_array_trains_as_the_loop(kind, data):
    begun = [trial for trial in sweep.trials() if trial.dropout == 0.0][:2]
    loop, array = sweep.Loop(kind, begun), sweep.Refilled(kind, begun)
    for way in (loop, array):
        way.replace(0, sweep.trials()[21])
    for _ in range(2):
        assert array.epoch(data) == pytest.approx(loop.epoch(data), rel=1e-3)
    array.close()


def test_every_way_sweeps_and_the_report_names_the_ratio(data, monkeypatch):
    few = sweep.trials()[:6]
    monkeypatch.setattr(sweep, "trials", lambda: few)
    options = argparse.Namespace(rounds=1, width=4, epochs=1)
    seconds = sweep.measure("mlp", options, data, lambda text: None)
    lines = sweep.report("mlp", seconds)
    assert len(lines) == 4
    assert f"dnnsuite is {seconds['loop'][0] / seconds['dnnsuite'][0]:.2f} [" in lines[1]
