# SPDX-License-Identifier: MIT
"""Advice from beginning to end, on models that are tiny."""

import pytest
import torch

import dnnsuite
import played_turns
import tiny_workloads  # registers blobs
from dnnsuite.advisor import advise_job
from dnnsuite.advisor.front import verified
from dnnsuite.errors import InvalidArgument

assert tiny_workloads.Right.name == "blobs"
BATCH = torch.randn(8, 6), torch.randn(8, 1)


@pytest.fixture(autouse=True)
def a_quiet_machine(monkeypatch):
    played_turns.play(monkeypatch)


def small():
    return torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))


def error(model, x, y):
    return (model(x) - y).square().mean()


def test_a_small_network_gains_from_an_array():
    found = dnnsuite.advise(small, BATCH, error, trials=8, steps=10, threads=1)
    assert found.mode == "hfta"
    assert found.curve("hfta").at(4).gain == pytest.approx(4 / played_turns.seconds(4), rel=0.01)
    assert found.low <= found.gain <= found.high
    assert set(found.sweep_s) == {"serial", "hfta"}


def test_a_part_that_does_not_train_and_batches_by_name():
    def half():
        model = small()
        model[0].requires_grad_(False)
        return model

    def sgd(parameters):
        return torch.optim.SGD([p for p in parameters if p.requires_grad], lr=0.1)

    rng, batch = torch.get_rng_state(), {"x": BATCH[0], "y": BATCH[1]}
    found = dnnsuite.advise(half, batch, lambda model, batch: error(model, **batch), sgd, steps=10, threads=1)
    assert found.mode == "hfta"
    assert torch.equal(torch.get_rng_state(), rng)
    for wrong in ({"loss": None}, {"batch": BATCH[0].numpy()}, {"optimizer": "sgd"}):
        with pytest.raises(InvalidArgument):
            dnnsuite.advise(**{"models": half, "batch": BATCH, "loss": error, "optimizer": sgd, **wrong})


def test_a_job_and_how_far_off_its_prediction_is():
    rng = torch.get_rng_state()
    advice, step = verified("blobs", 6, threads=1)
    assert advice.steps == 10  # of its preset: 2 epochs of 5
    assert step.seconds == pytest.approx(played_turns.seconds(6))
    assert set(advice.measured_s) == {"plain", "B=1", "B=2", "B=4"}
    assert torch.equal(torch.get_rng_state(), rng)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"trials": 0}, "trials must be at least 1"), ({"threads": 0}, "threads"), ({"precision": "int8"}, "fp32")],
)
def test_refused(options, message):
    with pytest.raises(InvalidArgument, match=message):
        advise_job("blobs", **options)
    with pytest.raises(InvalidArgument, match="no option 'colour'"):
        advise_job("blobs", colour="red")
