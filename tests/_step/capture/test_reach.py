# SPDX-License-Identifier: MIT
"""Python values that code can reach beside its arguments."""

import types

import numpy as np

from dnnsuite._step.capture.reach import Reach

CONFIG = types.SimpleNamespace(beta=1.0, unused=1.0)


class Namespace:
    beta = 1.0


def helper():
    return CONFIG.beta * Namespace.beta


def values(function):
    reach = Reach()
    reach.call(function)
    return [read() for read in reach.readers]


def test_helpers_objects_and_classes_are_followed(monkeypatch):
    def loss(x):
        return x * helper()

    before = values(loss)
    monkeypatch.setattr(CONFIG, "unused", 2.0)
    assert values(loss) == before
    monkeypatch.setattr(CONFIG, "beta", 2.0)
    middle = values(loss)
    assert middle != before
    monkeypatch.setattr(Namespace, "beta", 2.0)
    assert values(loss) != middle


def test_functions_in_closures_and_small_arrays_are_followed():
    weights = np.ones(3)

    def inner():
        return weights[0]

    def loss(x):
        return x * inner()

    before = values(loss)
    weights[1] = 5
    assert values(loss) != before
