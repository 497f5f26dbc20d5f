# SPDX-License-Identifier: MIT
"""Losses of models alone and in an array, from the same weights on the same batches."""

import numpy as np
import pytest
import torch

import tiny_workloads
from dnnsuite.errors import InvalidArgument
from dnnsuite.jobs import JobConfig
from dnnsuite.jobs.trajectories import SKETCH, default_rates, train

RATES = [0.1, 0.05, 0.02]


def trained(way, precision="fp32", job="blobs", steps=12):
    config = JobConfig(B=3, batch_size=8, seed=3, precision=precision, threads=1, hyper={"lr": RATES})
    return train(job, config, way, steps, 5)


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-4), ("fp64", 1e-9)])
def test_all_ways_have_the_same_losses(precision, tolerance):
    serial, control, hfta = (trained(way, precision) for way in ("serial", "control", "hfta"))
    losses = np.array(serial.losses)
    assert losses.shape == (12, 3)
    assert losses[-4:].mean() < losses[:4].mean()
    for other in (control, hfta):
        np.testing.assert_allclose(other.losses, losses, rtol=tolerance)
        assert other.start == serial.start  # of one start, too
        np.testing.assert_allclose(other.end, serial.end, atol=tolerance)
    assert serial.start[0] == serial.start[1]
    assert serial.accuracy is None
    assert serial.provenance["data"]["source"] == "made up"


def test_a_sketch_keeps_distances():
    hfta = trained("hfta")
    model = tiny_workloads.model({"width": 4}, {})
    count = sum(p.numel() for p in model.parameters())
    assert len(hfta.end[0]) == SKETCH > count
    distance = np.linalg.norm(np.subtract(hfta.end, hfta.start), axis=1)
    assert (distance > 0.01).all()
    assert distance[0] > distance[2]  # the larger rate went further


def test_a_broken_operator_is_far_away():
    right = dict(vars(torch.nn.Linear))
    hfta, serial = (trained(way, job="broken_blobs", steps=4) for way in ("hfta", "serial"))
    assert np.abs(np.subtract(hfta.losses, serial.losses)).max() > 1e-4
    assert dict(vars(torch.nn.Linear)) == right


def test_rates():
    assert default_rates("blobs", 3) == [0.1, 0.05, 0.025]
    with pytest.raises(InvalidArgument, match="no job 'blob'"):
        default_rates("blob", 3)
