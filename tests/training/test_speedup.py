# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite.training.array_stepper import STEPS, Alone, speedup
from dnnsuite.training.loading import Feed
from dnnsuite.training.processes import Processes
from tiny_training import experiment


def test_a_measurement_disturbs_no_generator_and_is_not_repeated_without_need():
    made = experiment()
    feed, alone = Feed([made], Processes("cpu")), Alone(made, Processes("cpu"))
    before = torch.get_rng_state()
    for _ in range(3):
        assert alone.due(trained_s=0.0)
        alone.measure(feed.training(0, made.order.steps - STEPS, [0]), 1.0)
    feed.close()
    assert torch.equal(torch.get_rng_state(), before)
    assert [array for _, array in alone.pairs] == [1.0] * 3
    assert all(took > 0 for took, _ in alone.pairs)
    assert not alone.due(trained_s=0.0)
    assert alone.due(trained_s=1000 * alone.seconds)


def test_one_batch_is_no_measurement():
    made = experiment()
    feed, alone = Feed([made], Processes("cpu")), Alone(made, Processes("cpu"))
    alone.measure(feed.training(0, made.order.steps - 1, [0]), 1.0)
    feed.close()
    assert alone.pairs == []


def test_the_speedup_has_an_interval_from_three_measurements_on():
    assert speedup([]) is None
    assert speedup([(3.0, 1.0), (5.0, 1.0)]).value == 4.0
    assert speedup([(3.0, 1.0), (5.0, 1.0)]).low is None
    found = speedup([(4.0, 1.0), (4.1, 1.01), (3.9, 1.0), (4.0, 0.99)])
    assert found.low < 4.0 < found.high
    assert found.value == pytest.approx(4.0, rel=0.02)
