# SPDX-License-Identifier: MIT
"""Judgement on losses that were made up, so that the answer is known."""

import numpy as np
import pytest

from dnnsuite.workflow.convergence.verdict import Verdict, Ways, judge, smoothed

STEPS, MODELS = 50, 3
SERIAL = np.linspace(2, 1, STEPS)[:, None] * np.array([1.0, 1.1, 0.9])
START, END = np.zeros((MODELS, 8)), np.ones((MODELS, 8))


def chaotic(scale, rate=0.2, top=0.05):
    """Losses that drift from `SERIAL` as rounding makes them: exponentially, to a level of their own."""
    drift = np.minimum(scale * np.exp(rate * np.arange(STEPS)), top)[:, None]
    return SERIAL * (1 + drift * np.array([1, -1, 0.5]))


def verdict(hfta, control, end=END * (1 + 2e-5), end_control=END * (1 + 1e-5), precision="fp32", **changed):
    ways, weights = Ways(SERIAL, control, hfta), Ways(END, end_control, end)
    return judge(ways, START, weights, changed.get("accuracy"), precision, changed.get("smooth", 10))


def test_drift_as_of_the_control_is_the_same():
    found = verdict(chaotic(3e-7), chaotic(1e-7))
    assert found.same
    assert found.word == "same"
    assert found.iteration is None
    assert found.raw == pytest.approx(3e-7 * np.exp(0.2 * (STEPS - 1)), rel=1e-6)
    assert found.loss < found.raw
    assert found.weights == pytest.approx(2e-5, rel=1e-6)
    assert str(found).startswith("same: smoothed losses differ by")


def test_drift_that_begins_too_far_away_differs_though_it_ends_where_the_control_does():
    found = verdict(chaotic(1e-3), chaotic(1e-7, rate=0.4))
    assert not found.same
    assert (found.iteration, found.model) == (0, 0)
    assert "first at iteration 0 of model 0" in str(found)


def test_drift_may_set_in_a_little_sooner_but_not_before_the_first_update():
    late, soon = chaotic(1e-9, rate=0.0), chaotic(1e-9, rate=0.0)
    late[12:] *= 1 + 1e-3
    soon[10:] *= 1 + 1e-3
    assert verdict(soon, late).same
    soon[5:] *= 1 + 1e-3
    assert verdict(soon, late).iteration == 5
    first = chaotic(1e-9, rate=0.0)
    first[0] *= 1 + 1e-3
    late[1:] *= 1 + 1e-3
    assert verdict(first, late).iteration == 0


def test_one_model_and_weights_alone():
    wrong = chaotic(1e-7)
    wrong[20:, 2] += 1e-3
    assert (verdict(wrong, chaotic(1e-7)).iteration, verdict(wrong, chaotic(1e-7)).model) == (20, 2)
    found = verdict(chaotic(1e-7), chaotic(1e-7), end=END * 1.01)
    assert not found.same
    assert found.iteration is None
    assert found.weights == pytest.approx(0.01)


@pytest.mark.parametrize(("precision", "same"), [("fp32", True), ("bf16", True), ("fp64", False)])
def test_a_few_roundings_are_none_where_the_control_had_luck(precision, same):
    found = verdict(SERIAL * (1 + 1e-6), SERIAL, END, END, precision)
    assert found.same is same


def test_losses_that_are_no_numbers():
    diverged, other = SERIAL.copy(), SERIAL.copy()
    diverged[30:, 0], other[30:, 0] = np.nan, np.inf
    ways = Ways(diverged, diverged, other)
    assert judge(ways, START, Ways(END, END, END), None, "fp32", 10).same
    found = judge(Ways(SERIAL, SERIAL, other), START, Ways(END, END, END), None, "fp32", 10)
    assert (found.same, found.iteration) == (False, 30)
    lost = [[None if value != value else value for value in row] for row in diverged.tolist()]  # as JSON keeps them
    assert judge(Ways(lost, lost, lost), START, Ways(END, END, END), None, "fp32", 10).same


def test_weights_that_are_no_numbers():
    lost = END.copy()
    lost[0] = np.nan
    assert not verdict(SERIAL, SERIAL, end=lost).same
    assert judge(Ways(SERIAL, SERIAL, SERIAL), START, Ways(lost, lost, lost), None, "fp32", 10).same


def test_accuracies():
    found = verdict(SERIAL, SERIAL, accuracy=Ways([0.5, 0.6], [0.5, 0.61], [0.52, 0.6]))
    assert found.accuracy == pytest.approx(0.02)
    assert found.accuracy_control == pytest.approx(0.01)
    assert isinstance(found, Verdict)
    assert found.to_dict()["verdict"] == "same"
    assert "accuracies on held-out data by 0.02 (0.01)" in str(found)
    assert not verdict(SERIAL, SERIAL, accuracy=Ways([0.5, 0.6], [0.5, 0.61], [0.7, 0.6])).same
    assert verdict(SERIAL, SERIAL, accuracy=Ways([0.5, 0.6], [0.5, 0.7], [0.7, 0.6])).same  # the control is as far


def test_smoothing():
    assert smoothed([[1.0], [3.0], [8.0]], 2).tolist() == [[2.0], [8.0]]
    assert smoothed(SERIAL, 1).tolist() == SERIAL.tolist()
