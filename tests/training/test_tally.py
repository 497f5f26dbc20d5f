# SPDX-License-Identifier: MIT
import math

import pytest
import torch

from dnnsuite.training.stepper import Tally


def found(loss, *counts):
    return lambda: (torch.tensor(loss), torch.tensor(counts))


def test_means_are_over_samples_not_over_batches():
    tally = Tally(("acc1",))
    tally.add(found(2.0, 3.0), 6)
    tally.add(found(5.0, 2.0), 2)
    tally.add(found(9.0, 1.0), 0)  # keeps in step only
    assert len(tally) == 3
    assert tally.collect() == [math.inf]
    assert len(tally) == 0
    assert tally.means(tally.totals[0]) == {"loss": pytest.approx(22 / 8), "acc1": pytest.approx(5 / 8)}


def test_the_first_loss_that_is_not_finite_is_told():
    tally = Tally(())
    for loss in (1.0, 2.0, math.nan, math.inf):
        tally.add(found(loss), 1)
    assert tally.collect() == [2]
    assert tally.collect() == [math.inf]


def test_models_of_an_array_are_counted_apart():
    tally = Tally(("acc1",), models=2)
    for losses in ([1.0, 2.0], [3.0, math.nan]):
        tally.add(lambda losses=losses: (torch.tensor(losses), torch.tensor([[1.0], [2.0]])), 4)
    assert tally.collect() == [math.inf, 1]
    tally.keep([0])
    assert [tally.means(each) for each in tally.totals] == [{"loss": 2.0, "acc1": 0.25}]


def test_results_of_the_last_steps_are_waited_for_last():
    asked = []
    tally = Tally(())
    for i in range(5):
        tally.add(lambda i=i: (asked.append(i), (torch.tensor(1.0), torch.zeros(0)))[1], 1)
    assert asked == [0, 1, 2]
    tally.collect()
    assert asked == [0, 1, 2, 3, 4]
