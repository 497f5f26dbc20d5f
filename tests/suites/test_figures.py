# SPDX-License-Identifier: MIT
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnnsuite._runs.rates import Sample
from dnnsuite.suites._method import Observations, figures, samples


def observations(seconds, number=2, skip=2, wait=0.25):
    seen, at = Observations(number, skip), 5
    for each in seconds:
        stop = at + round(each * 1e9)
        seen.add(at, stop, round(wait * (stop - at)), [0.5] * number)
        at = stop + 1000
    return seen


@given(st.lists(st.floats(0.01, 10.0), min_size=3, max_size=80))
def test_the_rate_is_items_over_the_time_of_what_is_kept(seconds):
    found = figures(observations(seconds), items_per_batch=8)
    kept = seconds[2:]
    assert found["rate_per_s"] == pytest.approx(len(kept) * 16 / sum(kept), rel=1e-6)
    assert (found["dropped"], found["kept"]) == (2, len(kept))
    assert found["data_wait_share"] == pytest.approx(0.25, rel=1e-6)
    if found["rate_interval_per_s"] is not None:
        assert len(kept) >= 50
        low, high = found["rate_interval_per_s"]
        assert low <= found["rate_per_s"] * (1 + 1e-9)
        assert high >= found["rate_per_s"] * (1 - 1e-9)


def test_an_interval_is_given_where_it_holds():
    found = figures(observations([1.0, 1.02] * 40), 8)
    low, high = found["rate_interval_per_s"]
    assert low < found["rate_per_s"] < high
    assert figures(observations([1.0, 1.02] * 20), 8)["rate_interval_per_s"] is None


def test_warm_up_does_not_reach_the_rate():
    assert figures(observations([100.0, 100.0] + [1.0] * 30), 8)["rate_per_s"] == pytest.approx(16.0)


def test_a_run_that_is_steady_and_one_that_is_not():
    steady = figures(observations([1.0, 1.01] * 20), 8)
    assert steady["steady"]["steady"] is True
    assert steady["flags"] == []
    slower = figures(observations([1.0] * 20 + [1.5] * 20), 8)
    assert slower["steady"]["steady"] is False
    assert slower["flags"] == ["no steady state"]
    assert "slower" in slower["steady"]["reason"]


def test_few_observations_have_no_verdict():
    found = figures(observations([1.0, 9.0, 1.0, 2.0]), 8)
    assert found["steady"]["steady"] is None
    assert "too few" in found["steady"]["reason"]
    assert found["flags"] == []


def test_disturbances_are_said_where_they_are_no_accident(monkeypatch):
    seen = observations([1.0] * 10)
    busy = np.array([True] * 2 + [False] * 8)
    columns = {
        "clock_ghz": np.full(10, 2.0),
        "involuntary_switches": np.ones(10, np.int64),
        "steal_s": np.full(10, 0.1),
        "pressure_s": np.full(10, np.nan),
        "throttled": ~busy & False,
        "contended": busy,
    }
    monkeypatch.setattr(seen.watch, "columns", lambda: columns)
    monkeypatch.setattr(type(seen.watch), "__len__", lambda self: 10)
    found = figures(seen, 8)  # in the two that are dropped
    assert found["flags"] == []
    assert found["contention"]["contended"] == 0
    assert found["contention"]["steal_s"] == pytest.approx(0.8)
    assert samples(seen, 8)[0][-2:] == ("warmup", "contended")
    busy[2:5] = True
    found = figures(seen, 8)
    assert found["flags"] == ["contended"]
    assert found["contention"]["contended"] == 3


def test_samples_have_every_observation():
    made = samples(observations([1.0, 2.0, 0.5]), 8)
    assert made[0] == Sample(0, 5, 1000000005, 16, "warmup", "")
    assert [sample.phase for sample in made] == ["warmup", "warmup", "train"]
