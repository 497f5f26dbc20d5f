# SPDX-License-Identifier: MIT
"""Stop rules on series whose nature is known: constant, noise, correlated, drifting, walking, short."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnnsuite import timing
from dnnsuite.errors import Error, InvalidArgument

RULES = {
    "fixed": lambda: timing.Fixed(200),
    "stdrel": lambda: timing.StdRel(min_time_s=0),
    "entropy": timing.Entropy,
    "precision": timing.Precision,
}


def drive(rule, values, elapsed_s=None):
    for value in values:
        if rule.add(value, 0.0 if elapsed_s is None else elapsed_s) != "running":
            break
    return rule.status


def correlated(generator, phi, length, sd):
    noise = generator.normal(0, sd, length)
    for i in range(1, length):
        noise[i] += phi * noise[i - 1]
    return 1 + noise


@pytest.mark.parametrize("rule", RULES)
def test_a_constant_series_converges(rule):
    assert drive(RULES[rule](), [0.25] * 400) == "converged"


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("sd", [0.0002, 0.001, 0.01])
def test_a_random_walk_never_converges(rule, sd):
    generator = np.random.default_rng(7)
    for _ in range(60):
        walk = np.abs(1 + np.cumsum(generator.normal(0, sd, 700))) + 1e-6
        assert drive(RULES[rule](), walk) != "converged"


@pytest.mark.parametrize("rule", RULES)
def test_a_drift_does_not_converge(rule):
    drift = 1 + 1e-4 * np.arange(700) + np.random.default_rng(1).normal(0, 1e-3, 700)
    assert drive(RULES[rule](), drift) != "converged"


@pytest.mark.parametrize(("phi", "share"), [(0, 0.98), (0.5, 0.95)])
def test_noise_converges_to_the_mean_it_has(phi, share):
    generator, good = np.random.default_rng(2), 0
    for _ in range(60):
        rule = timing.Precision(0.02)
        if drive(rule, correlated(generator, phi, 5200, 0.05)) == "converged":
            good += abs(np.mean(rule.seconds) - 1) < 0.03
    assert good / 60 >= share


def test_precision_looks_only_when_the_samples_have_doubled():
    generator = np.random.default_rng(3)
    counts = set()
    for sd in (0.001, 0.05, 0.08, 0.1):
        rule = timing.Precision(first=40)
        assert drive(rule, 1 + generator.normal(0, sd, 10_000)) == "converged"
        counts.add(len(rule.seconds))
    assert counts <= {40 * 2**k for k in range(9)}
    assert len(counts) > 1


def test_precision_gives_up_on_what_more_samples_do_not_help():
    rule = timing.Precision(1e-6)
    walk = 10 + np.cumsum(np.random.default_rng(5).normal(0, 0.01, 80 * 2**7))
    assert drive(rule, walk) == "noisy"
    assert "more samples do not help" in rule.reason


def test_stdrel_ends_by_noise_or_by_its_standing_still():
    generator = np.random.default_rng(4)
    quiet = timing.StdRel(0.005, min_time_s=0)
    assert drive(quiet, 1 + generator.normal(0, 0.001, 400)) == "converged"
    assert len(quiet.seconds) <= 64
    loud = timing.StdRel(0.005, min_time_s=0)
    assert drive(loud, np.abs(1 + generator.normal(0, 0.1, 4000))) == "noisy"
    assert len(loud.seconds) % 16 == 0
    late = timing.StdRel(min_time_s=100)
    assert drive(late, [1.0] * 100) == "running"
    assert late.add(1.0) in ("running", "timeout")


def test_entropy_ends_when_the_distribution_is_known():
    rule = timing.Entropy()
    assert drive(rule, np.random.default_rng(6).choice([1.0, 1.1, 1.2], 3000)) == "converged"
    assert len(rule.seconds) < 1000


def test_fixed_takes_so_many_and_says_what_they_are_worth():
    generator = np.random.default_rng(8)
    good, bad, short = timing.Fixed(100), timing.Fixed(100), timing.Fixed(5)
    assert drive(good, 1 + generator.normal(0, 0.01, 200)) == "converged"
    assert drive(bad, np.abs(1 + generator.normal(0, 0.3, 200))) == "noisy"
    assert drive(short, [1.0] * 9) == "noisy"
    assert (len(good.seconds), len(bad.seconds), len(short.seconds)) == (100, 100, 5)
    assert "not to 1 %" in bad.reason
    assert "too short" in short.reason


@pytest.mark.parametrize("rule", RULES)
def test_the_budget_ends_all(rule):
    made = RULES[rule]()
    assert drive(made, [1.0], elapsed_s=math.inf) == "timeout"
    assert made.reason == "the time is up after 1 samples"
    with pytest.raises(Error, match="has ended"):
        made.add(1.0)


def test_the_budget_is_for_the_samples_where_no_clock_is_given():
    rule = timing.Precision(budget_s=3)
    assert [rule.add(1.0) for _ in range(3)] == ["running", "running", "timeout"]


@given(st.lists(st.floats(1e-9, 1e9), max_size=120), st.sampled_from(sorted(RULES)))
def test_any_times_give_a_status(values, rule):
    made = RULES[rule]()
    assert drive(made, values) in ("running", "converged", "noisy")
    assert (made.status == "running") == (made.reason == "")
    assert made.seconds.tolist() == values[: len(made.seconds)]


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: timing.Fixed(0), "samples"),
        (lambda: timing.Fixed(10, target=0), "target"),
        (lambda: timing.StdRel(0), "max_noise"),
        (lambda: timing.StdRel(min_samples=5), "min_samples"),
        (lambda: timing.Entropy(min_r2=2), "min_r2"),
        (lambda: timing.Entropy(resolution=0), "resolution"),
        (lambda: timing.Precision(first=5), "first"),
        (lambda: timing.Precision(budget_s=-1), "budget_s"),
    ],
)
def test_settings_that_cannot_be_are_named(make, named):
    with pytest.raises(InvalidArgument, match=named):
        make()


@pytest.mark.parametrize("seconds", [0, -1, math.nan, math.inf])
def test_a_time_that_cannot_be_changes_nothing(seconds):
    rule = timing.Fixed(2)
    with pytest.raises(InvalidArgument, match="positive, finite"):
        rule.add(seconds)
    assert len(rule.seconds) == 0
