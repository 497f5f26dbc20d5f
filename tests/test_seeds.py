# SPDX-License-Identifier: MIT
"""One seed for torch, NumPy and Python: whatever a model draws from, a run of the same seed is the same run."""

import random

import numpy as np
import pytest
import torch

import dnnsuite
from dnnsuite._seeds import Generators, seed_all, seeded
from dnnsuite.training import run
from tiny_training import experiment

DRAWS = {"python": random.random, "numpy": np.random.rand, "torch": lambda: float(torch.rand(()))}


def drawn():
    return [draw() for draw in DRAWS.values()]


def test_all_three_are_seeded_and_put_back():
    seed_all(3)
    first, then = drawn(), drawn()
    seed_all(3)
    assert drawn() == first
    with seeded(7):
        drawn()
    assert drawn() == then


def test_a_reader_goes_on_where_it_left_off():
    with seeded(5):
        expected = [drawn(), drawn()]
    reader = Generators(5)
    found = []
    for _ in range(2):
        with reader.lent():
            found.append(drawn())
        drawn()
    assert found == expected


class Skipping(torch.nn.Module):
    """A model of stochastic depth."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.block, self.head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 4)
        self.head.bias.data.fill_(DRAWS[kind]())

    def forward(self, x):
        return self.head(x + torch.relu(self.block(x)) if DRAWS[self.kind]() < 0.5 else x)


@pytest.mark.parametrize("kind", DRAWS)
def test_a_training_run_of_one_seed_is_one_run(kind, tmp_path):
    def weights(name, **options):
        random.seed()  # as in another process
        np.random.seed()
        torch.seed()
        trained = run(experiment(model=lambda: Skipping(kind), seed=3, epochs=2), tmp_path / name, quiet=True)
        return torch.cat([p.detach().flatten() for p in trained.model.parameters()])

    assert torch.equal(weights("a"), weights("b"))


@pytest.mark.parametrize("kind", DRAWS)
def test_a_sweep_of_one_seed_is_one_sweep(kind):
    def weights():
        random.seed()
        np.random.seed()
        data = torch.ones(16, 8), torch.zeros(16, dtype=torch.long)
        s = dnnsuite.sweep(
            lambda c: Skipping(kind), {"lr": [0.1]}, data, batch_size=8, out=False, quiet=True, threads=1, seed=3
        )
        return s.best_value

    weights()  # packages that it imports draw numbers
    assert weights() == weights()
