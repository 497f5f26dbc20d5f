# SPDX-License-Identifier: MIT
"""Sweeps with optimizers that look at whole parameters, or whose models are others in evaluation."""

import pytest
import torch

import dnnsuite
from dnnsuite.tuning import Grid


def make(config):
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))


@pytest.mark.parametrize(
    "optimizer", ["LAMB", "AdamWScheduleFree", lambda params, config: torch.optim.Adafactor(params, lr=config["lr"])]
)
def test_arrays_and_single_trials_have_one_history(optimizer, tmp_path):
    x = torch.randn(96, 4, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] * x[:, 1] > 0).long()
    histories = []
    for mode in ("hfta", "serial"):
        sweep = dnnsuite.sweep(
            make,
            {"lr": [1e-2, 1e-1]},
            (x[:64], y[:64]),
            batch_size=32,
            evaluate=(x[64:], y[64:]),
            epochs=2,
            metric="loss",
            algorithm=Grid(),
            optimizer=optimizer,
            mode=mode,
            out=tmp_path / mode,
        )
        histories.append(sweep.history["loss"].tolist())
        logits = sweep.best_model(x[64:]).detach()
        assert float(torch.nn.functional.cross_entropy(logits, y[64:])) == pytest.approx(min(histories[-1]), abs=1e-6)
    assert histories[0] == histories[1]
