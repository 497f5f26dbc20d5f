# SPDX-License-Identifier: MIT
"""Schedules of Hyperband by the paper's formula and HFTA's defaults, and who goes on."""

import math

import pytest

from dnnsuite.errors import InvalidArgument
from dnnsuite.tuning import Hyperband, Setting, SuccessiveHalving, Uniform, hyperband_rungs
from played_search import played

R81 = [
    [(81, 1), (27, 3), (9, 9), (3, 27), (1, 81)],
    [(34, 3), (11, 9), (3, 27), (1, 81)],
    [(15, 9), (5, 27), (1, 81)],
    [(8, 27), (2, 81)],
    [(5, 81)],
]


def test_the_schedule_of_the_paper():
    assert hyperband_rungs(81) == R81
    assert hyperband_rungs(81, skip_last=2) == [rungs[:-2] for rungs in R81]


@pytest.mark.parametrize("R", [9, 27, 81, 243])
def test_the_formula(R):
    s_max = {9: 2, 27: 3, 81: 4, 243: 5}[R]  # int(log(243) / log(3)) is 4
    brackets = hyperband_rungs(R)
    assert len(brackets) == s_max + 1
    for s, rungs in zip(range(s_max, -1, -1), brackets, strict=True):
        n = math.ceil((s_max + 1) * 3**s / (s + 1))
        assert rungs == [(n // 3**i, R // 3 ** (s - i)) for i in range(s + 1) if n // 3**i]


@pytest.mark.parametrize(
    ("skip_last", "trials", "continued", "from_scratch"), [(0, 143, 1581, 1902), (2, 130, 492, 579)]
)
def test_the_saving_of_rungs_that_continue(skip_last, trials, continued, from_scratch):
    algorithm = Hyperband(skip_last=skip_last)
    algorithm.begin(Setting({"x": Uniform(0, 1)}, (), 81, 0))
    plan = algorithm.plan()
    assert (plan.trials, plan.epochs, plan.epochs_from_scratch) == (trials, continued, from_scratch)


def test_the_best_third_goes_on():
    trained, given_up = played(SuccessiveHalving(9), 9, lambda trial, epoch: abs(trial - 4.1))
    assert trained == {**dict.fromkeys(range(9), 1), 3: 3, 4: 9, 5: 3}
    assert sorted(given_up) == [0, 1, 2, 3, 5, 6, 7, 8]


def test_a_trial_that_failed_is_ranked_last():
    trained, given_up = played(SuccessiveHalving(9), 9, lambda trial, epoch: None if trial == 4 else abs(trial - 4.1))
    assert trained[5] == 9
    assert 4 not in given_up


def test_all_brackets_run():
    trained, _ = played(Hyperband(), 27, lambda trial, epoch: trial)
    assert sum(trained.values()) == planned_epochs(27)


def planned_epochs(R):
    algorithm = Hyperband()
    algorithm.begin(Setting({"x": Uniform(0, 1)}, (), R, 0))
    return algorithm.plan().epochs


@pytest.mark.parametrize("options", [{"eta": 1}, {"eta": 2.5}, {"skip_last": -1}])
def test_bad_settings(options):
    with pytest.raises(InvalidArgument):
        Hyperband(**options)
    with pytest.raises(InvalidArgument, match="no rung"):
        Hyperband(skip_last=9).begin(Setting({"x": Uniform(0, 1)}, (), 9, 0))
