# SPDX-License-Identifier: MIT
"""Verdicts and bootstrap intervals: coverage in A/A, power, equivalence, invariances, and scipy as the oracle."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given
from hypothesis import strategies as st

from dnnsuite import timing
from dnnsuite.errors import InvalidArgument

times = st.lists(st.floats(0.5, 2), min_size=2, max_size=12)


def pairs(generator, effect, blocks, noise=0.02):
    """Seconds of a baseline and of a candidate that is `effect` times as fast; they share what disturbs a block."""
    shared = np.exp(generator.normal(0, 0.1, blocks))
    own = np.exp(generator.normal(0, noise, (2, blocks)))
    return shared * own[0], shared * own[1] / effect


def test_a_against_a_covers_one():
    generator = np.random.default_rng(0)
    found = [timing.compare(*pairs(generator, 1.0, 10)) for _ in range(2000)]
    assert np.mean([one.low <= 1 <= one.high for one in found]) >= 0.94
    assert np.mean([one.verdict in ("faster", "slower") for one in found]) < 0.06


@pytest.mark.parametrize(("effect", "verdict"), [(1.03, "faster"), (1 / 1.03, "slower")])
def test_three_percent_are_found(effect, verdict):
    generator = np.random.default_rng(1)
    found = [timing.compare(*pairs(generator, effect, 40)).verdict for _ in range(300)]
    assert np.mean([one == verdict for one in found]) > 0.95


def test_what_is_the_same_is_called_so():
    generator = np.random.default_rng(2)
    found = [timing.compare(*pairs(generator, 1.0, 60, noise=0.01)).verdict for _ in range(200)]
    assert np.mean([one == "same" for one in found]) > 0.95


def test_an_effect_below_the_threshold_is_not_a_verdict():
    baseline, candidate = pairs(np.random.default_rng(3), 1.005, 4000)
    assert timing.compare(baseline, candidate).verdict == "same"
    assert timing.compare(baseline, candidate, threshold=0.002).verdict == "faster"


def test_an_inconclusive_one_says_how_many_more():
    """As many more as it says do decide it, mostly; and it says it in words."""
    generator, decided = np.random.default_rng(4), 0
    for _ in range(100):
        few = timing.compare(*pairs(generator, 1.0, 6, noise=0.03))
        if few.verdict != "inconclusive":
            decided += 1
            continue
        assert few.more_blocks >= 1
        assert str(few.more_blocks) in few.reason
        blocks = few.blocks + 2 * few.more_blocks
        decided += timing.compare(*pairs(generator, 1.0, blocks, noise=0.03)).verdict != "inconclusive"
    assert decided > 60


@given(times.flatmap(lambda a: st.tuples(st.just(a), st.lists(st.floats(0.5, 2), min_size=len(a), max_size=len(a)))))
def test_paired_is_the_t_interval_of_log_ratios(both):
    a, b = np.array(both[0]), np.array(both[1])
    found, logs = timing.compare(a, b), np.log(a / b)
    width = scipy.stats.t.ppf(0.975, len(a) - 1) * logs.std(ddof=1) / math.sqrt(len(a))
    assert math.log(found.ratio) == pytest.approx(logs.mean(), abs=1e-12)
    assert math.log(found.high) - math.log(found.low) == pytest.approx(2 * width, abs=1e-9)
    swapped = timing.compare(b, a)
    assert swapped.ratio == pytest.approx(1 / found.ratio)
    assert {found.verdict, swapped.verdict} in ({"faster", "slower"}, {"same"}, {"inconclusive"})


@given(times, times)
def test_unpaired_is_welch(a, b):
    assume(np.ptp(a) > 1e-6 and np.ptp(b) > 1e-6)  # scipy warns of values that are nearly equal
    found = timing.compare(a, b, paired=False)
    oracle = scipy.stats.ttest_ind(np.log(a), np.log(b), equal_var=False).confidence_interval(0.95)
    if math.isfinite(oracle.low) and oracle.high - oracle.low > 1e-9:
        assert (math.log(found.low), math.log(found.high)) == pytest.approx((oracle.low, oracle.high), abs=1e-6)


def test_few_pairs_have_the_exact_p():
    a, b = pairs(np.random.default_rng(5), 1.02, 7)
    logs = np.log(a / b)
    flips = [abs((logs * signs).sum()) for signs in itertools.product((1, -1), repeat=7)]
    assert timing.compare(a, b).p == np.mean(np.array(flips) >= abs(logs.sum()) * (1 - 1e-12))
    assert math.isnan(timing.compare(*pairs(np.random.default_rng(5), 1.02, 10)).p)


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        ([], [], "at least 2 pairs"),
        ([1.0], [1.0], "at least 2 pairs"),
        ([1.0, 0.0], [1.0, 1.0], "not positive"),
        ([1.0, 1.0], [1.0, math.nan], "not positive"),
    ],
)
def test_what_cannot_be_compared_has_a_status(a, b, reason):
    found = timing.compare(a, b)
    assert found.verdict == "inconclusive"
    assert reason in found.reason
    assert math.isnan(found.ratio)


def test_arguments_that_cannot_be_are_refused():
    for options in ({"threshold": 0}, {"confidence": 1}):
        with pytest.raises(InvalidArgument):
            timing.compare([1.0, 2.0], [1.0, 2.0], **options)
    with pytest.raises(InvalidArgument, match="2 and 3"):
        timing.compare([1.0] * 2, [1.0] * 3)


def hierarchy(generator, runs, blocks, between, within):
    return [list(10 + generator.normal(0, between) + generator.normal(0, within, blocks)) for _ in range(runs)]


def test_the_bootstrap_covers_the_mean_over_runs():
    """Runs differ more than blocks do: who takes blocks for independent is too sure by far."""
    generator = np.random.default_rng(6)
    samples = [hierarchy(generator, 12, 8, 1.0, 0.3) for _ in range(200)]
    found = [timing.bootstrap_mean(runs, resamples=500, seed=i) for i, runs in enumerate(samples)]
    assert np.mean([one.low <= 10 <= one.high for one in found]) > 0.88
    pooled = [timing.bootstrap_mean([list(itertools.chain(*runs))], resamples=500) for runs in samples]
    assert np.mean([one.low <= 10 <= one.high for one in pooled]) < 0.6


def test_a_ratio_against_itself_covers_one():
    generator = np.random.default_rng(7)
    found = [
        timing.bootstrap_ratio(
            hierarchy(generator, 10, 5, 0.3, 0.3), hierarchy(generator, 10, 5, 0.3, 0.3), resamples=400, seed=i
        )
        for i in range(200)
    ]
    assert np.mean([one.low <= 1 <= one.high for one in found]) > 0.88
    assert {one.method for one in found} == {"t"}  # of few runs
    assert np.mean([one.low <= 1 <= one.high for one in found]) > 0.91


def test_bca_agrees_with_scipy_where_there_is_one_level():
    values = np.random.default_rng(8).exponential(1, 40)
    ours = timing.bootstrap_mean([values.tolist()], resamples=20_000, seed=1)
    theirs = scipy.stats.bootstrap(
        (values,), np.mean, n_resamples=20_000, method="BCa", rng=np.random.default_rng(9)
    ).confidence_interval
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.02)
    assert ours.value == pytest.approx(values.mean())


def test_the_same_seed_gives_the_same_bits():
    runs = hierarchy(np.random.default_rng(10), 24, 5, 1, 1)
    one, again, other = (timing.bootstrap_mean(runs, seed=seed) for seed in (3, 3, 4))
    assert (one.low, one.high) == (again.low, again.high) != (other.low, other.high)


@given(st.lists(st.lists(st.floats(1, 2), min_size=1, max_size=2), min_size=20, max_size=22), st.integers(-3, 3))
def test_the_unit_does_not_matter(runs, power):
    factor = 2.0**power
    one = timing.bootstrap_mean(runs, resamples=100)
    other = timing.bootstrap_mean([[factor * value for value in run] for run in runs], resamples=100)
    assert (other.low, other.high) == pytest.approx((factor * one.low, factor * one.high))
    low, high = min(map(min, runs)), max(map(max, runs))
    assert low * (1 - 1e-12) <= one.low <= one.high <= high * (1 + 1e-12)


def test_little_to_resample_is_a_status_and_nonsense_is_refused():
    assert math.isnan(timing.bootstrap_mean([]).value)
    alone = timing.bootstrap_mean([[3.0]])
    assert (alone.value, alone.runs) == (3.0, 1)
    assert math.isnan(alone.low)
    constant = timing.bootstrap_ratio([[2.0, 2.0]], [[1.0, 1.0]])
    assert (constant.value, constant.low, constant.high, constant.method) == (2, 2, 2, "t")
    with pytest.raises(InvalidArgument, match="no blocks"):
        timing.bootstrap_mean([[1.0], []])
    with pytest.raises(InvalidArgument, match="resamples=10"):
        timing.bootstrap_mean([[1.0, 2.0]], resamples=10)


@pytest.mark.parametrize("runs", [2, 3, 5, 10])
def test_intervals_of_few_runs_cover_what_they_claim(runs):
    """A bootstrap of 2 runs covers two thirds."""
    generator = np.random.default_rng(runs)
    found = [timing.bootstrap_mean([[x] for x in generator.normal(10, 1, runs)]) for _ in range(600)]
    assert 0.92 < np.mean([one.low <= 10 <= one.high for one in found]) < 0.98
    ratios = [
        timing.bootstrap_ratio(*([[x] for x in generator.normal(10, 0.5, runs)] for _ in "ab")) for _ in range(600)
    ]
    assert np.mean([one.low <= 1 <= one.high for one in ratios]) > 0.92


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_a_thing_compared_with_itself_is_seldom_faster_or_slower(phi, paired):
    generator = np.random.default_rng(12)
    wrong = 0
    for _ in range(300):
        sides = generator.standard_normal((2, 60))
        for i in range(1, 60):
            sides[:, i] = phi * sides[:, i - 1] + math.sqrt(1 - phi * phi) * sides[:, i]
        found = timing.compare(*np.exp(0.05 * sides), paired=paired, threshold=0.001)
        wrong += found.verdict in ("faster", "slower")
    assert wrong / 300 <= 0.08  # 0.26 and 0.68 without a guard for correlation


@pytest.mark.parametrize("paired", [True, False])
def test_two_runs_of_a_side_decide_nothing(paired):
    """Of a job with two speeds they show one as often as both: one in ten would be called faster or slower."""
    two = timing.compare([2.0, 2.001], [1.0, 1.001], paired=paired, independent=True)
    assert (two.verdict, two.more_blocks) == ("inconclusive", 1)
    assert "2 runs often show one of two modes" in two.reason
    assert two.low < 2 < two.high
    three = timing.compare([2.0, 2.001, 2.0], [1.0, 1.001, 1.0], paired=paired, independent=True)
    assert three.verdict == "faster"


def test_what_is_too_short_decides_nothing_unless_its_values_are_independent():
    slow, fast = [2.0, 2.01, 1.99], [1.0, 1.01, 0.99]
    found = timing.compare(slow, fast, paired=False)
    assert found.verdict == "inconclusive"
    assert "too short: 3 values, and 20 show how neighbours correlate" in found.reason
    assert found.more_blocks >= 17
    assert timing.compare(slow, fast, paired=False, independent=True).verdict == "faster"
