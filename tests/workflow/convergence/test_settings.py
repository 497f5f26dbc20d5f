# SPDX-License-Identifier: MIT
import pytest

from dnnsuite.errors import InvalidArgument
from dnnsuite.workflow.convergence.plan import ConvergenceSettings, resolve

BLOBS = {"job": "blobs", "plugins": ["tiny_workloads"], "device": "cpu"}


def test_defaults_are_of_the_job_and_the_preset():
    found = resolve(BLOBS)
    assert found.lrs == [0.1, 0.05, 0.025]
    assert (found.epochs, found.iters_per_epoch, found.iterations, found.batch_size) == (3, 20, 60, 8)
    assert found.precision == "fp32"
    paper = resolve({**BLOBS, "preset": "paper"})
    assert (paper.epochs, paper.iters_per_epoch) == (100, 391)
    assert paper.smooth == 100
    assert ConvergenceSettings.from_dict(found.to_dict()) == found


def test_what_a_user_gives():
    found = resolve({**BLOBS, "lrs": [".1,0.01", "1e-3"], "models": 3, "precision": "fp64", "epochs": 1})
    assert found.lrs == [0.1, 0.01, 0.001]
    assert found.precision == "fp64"
    assert found.iterations == 20
    assert resolve({**BLOBS, "models": 1}).lrs == [0.1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lrs": ["0.1,fast"]}, "--lrs fast: expected numbers"),
        ({"lrs": ["-1"]}, "positive"),
        ({"lrs": ["inf"]}, "positive"),
        ({"lrs": ["0.1,.1"]}, "each model needs another one"),
        ({"lrs": ["0.1"], "models": 2}, "give one per model"),
        ({"models": 0}, "--models 0: must be at least 1"),
        ({"epochs": 0}, "--epochs 0"),
        ({"iters_per_epoch": 0}, "--iters-per-epoch 0"),
        ({"preset": "fast"}, "unknown preset 'fast'; accepted: quick, default, paper"),
        ({"precision": "int8"}, "unknown precision 'int8'"),
        ({"job": "blob"}, "no workflow 'blob'"),
        ({"job": "cart"}, "job cart makes its batches with the model"),
    ],
)
def test_refused(given, message):
    with pytest.raises(InvalidArgument, match=message):
        resolve({**BLOBS, **given})


def test_a_record_of_another_version():
    values = resolve(BLOBS).to_dict()
    with pytest.raises(InvalidArgument, match="differ in: extra"):
        ConvergenceSettings.from_dict({**values, "extra": 1})
