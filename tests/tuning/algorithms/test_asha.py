# SPDX-License-Identifier: MIT
"""ASHA and population-based training over a value that is known."""

import pytest

from dnnsuite.errors import InvalidArgument
from dnnsuite.tuning import ASHA, PBT, Choice, Int, Setting, Uniform
from played_search import played


def test_the_best_is_promoted_to_the_end():
    trained, given_up = played(ASHA(9, parallel=1), 9, lambda trial, epoch: abs(trial - 4.1))
    assert trained[4] == 9
    assert sum(epochs > 1 for epochs in trained.values()) <= 5
    assert sorted([*given_up, 4]) == list(range(9))


def test_one_that_failed_is_not_promoted():
    trained, _ = played(ASHA(9, parallel=1), 9, lambda trial, epoch: None if trial == 4 else abs(trial - 4.1))
    assert trained[4] == 1
    assert max(trained, key=lambda trial: trained[trial]) in (3, 5)


def test_the_worst_become_copies_of_the_best():
    algorithm = PBT(4, quantile=0.25)
    space = {"lr": Uniform(0.0, 1.0), "width": Int(1, 9), "kind": Choice("a", "b")}
    algorithm.begin(Setting(space, (), 2, 0))
    orders = [algorithm.next() for _ in range(4)]
    assert algorithm.next() is None
    for order in orders:
        algorithm.report(order.trial, 1, float(order.trial))
    orders = {order.trial: order for order in (algorithm.next() for _ in range(4))}
    assert orders[3].source == 0
    assert [orders[trial].source for trial in range(3)] == [None] * 3
    assert 0 <= orders[3].config["lr"] <= 1
    assert 1 <= orders[3].config["width"] <= 9
    assert orders[3].config["kind"] in ("a", "b")


@pytest.mark.parametrize("make", [lambda: ASHA(0), lambda: ASHA(eta=1), lambda: PBT(0), lambda: PBT(quantile=0.9)])
def test_bad_settings(make):
    with pytest.raises(InvalidArgument):
        make()
