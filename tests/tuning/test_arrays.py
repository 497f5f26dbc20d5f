# SPDX-License-Identifier: MIT
"""Arrays of trials: whose state counts, that of a slot or that which a trial brings."""

import torch

from dnnsuite.tuning.arrays import Arrays
from dnnsuite.tuning.feeds import Feeds
from dnnsuite.tuning.recipe import Recipe
from dnnsuite.tuning.trial import Trial, Width


def test_a_trial_that_was_trained_elsewhere_brings_its_state(task):
    recipe = Recipe(lambda config: torch.nn.Linear(4, 2), Feeds(task.train, 16, 0), ("SGD", {"lr": 0.0}))
    arrays = Arrays(recipe, None, "loss", 1, Width(2))
    trials = [Trial(number, {}, number) for number in range(2)]
    for trial in trials:
        recipe.admit(trial)
    arrays.train(trials)
    own = arrays.weights(trials[0])
    state = arrays.park(trials[0])
    arrays.train(trials[:1])  # its slot goes on
    assert torch.equal(arrays.weights(trials[0])["weight"], own["weight"])
    moved = {name: torch.full_like(value, 0.5) for name, value in state["model"].items()}
    trials[0].state, trials[0].trained = {**state, "model": moved, "epoch": 4}, 4
    arrays.train(trials[:1])
    assert arrays.weights(trials[0])["weight"].unique().tolist() == [0.5]
    assert trials[0].trained == 5
    arrays.close()
