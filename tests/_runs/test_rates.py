# SPDX-License-Identifier: MIT
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnnsuite._runs import rates
from dnnsuite._runs.rates import FEWEST, Steps, interval, warmup
from dnnsuite.errors import InvalidArgument

S = 1_000_000_000


def steps(start_s: float, lengths_s: list[float], items: int = 1, per_epoch: int = 10**6) -> Steps:
    """Steps one after the other."""
    edges = np.rint((start_s + np.concatenate([[0], np.cumsum(lengths_s)])) * S).astype(np.int64)
    n = len(lengths_s)
    epochs = np.arange(n, dtype=np.int64) // per_epoch
    return Steps(edges[:-1], edges[1:], np.full(n, items, np.int64), epochs)


def test_one_replica_is_items_over_time() -> None:
    assert rates.rate([steps(5, [0.5, 1.5], items=8)]) == pytest.approx(16 / 2)


def test_gaps_between_steps_count() -> None:
    gappy = Steps(*(np.array(x, np.int64) for x in ([0, 3 * S], [S, 4 * S], [2, 2], [0, 0])))
    assert rates.rate([gappy]) == pytest.approx(1.0)


def test_common_interval_excludes_ramps() -> None:
    # One starts a second late, the other stops a second early; while both run they make 2 + 2 items a second.
    late, early = steps(1, [0.5] * 8), steps(0, [0.5] * 8)
    assert rates.common_window([late, early]) == (1 * S, 4 * S)
    assert rates.rate([late, early]) == pytest.approx(4.0)


def test_cut_steps_count_in_part() -> None:
    assert rates.items_between(steps(0, [1, 1], items=10), 0.5 * S, 1.25 * S) == pytest.approx(7.5)


def test_no_overlap_has_no_rate() -> None:
    apart = [steps(0, [1]), steps(2, [1])]
    assert rates.common_window(apart) is None
    assert np.isnan(rates.rate(apart))
    assert len(rates.block_rates(apart, 3)) == 0
    assert rates.common_window([]) is None


@given(
    st.lists(
        st.tuples(st.floats(0, 5), st.lists(st.floats(0.001, 3), min_size=1, max_size=30), st.integers(1, 64)),
        min_size=1,
        max_size=5,
    )
)
def test_rate_of_the_common_interval(replicas: list[tuple[float, list[float], int]]) -> None:
    made = [steps(*replica) for replica in replicas]
    window = rates.common_window(made)
    if window is None:
        assert np.isnan(rates.rate(made))
        return
    length_s = (window[1] - window[0]) / S
    each = [rates.items_between(r, *window) for r in made]
    assert all(0 <= items <= r.items.sum() * (1 + 1e-9) for items, r in zip(each, made, strict=True))
    assert rates.rate(made) == pytest.approx(sum(each) / length_s)
    middle = (window[0] + window[1]) / 2
    for replica, items in zip(made, each, strict=True):
        parts = rates.items_between(replica, window[0], middle) + rates.items_between(replica, middle, window[1])
        assert parts == pytest.approx(items, abs=1e-6)
    # Blocks of equal time average to the whole.
    assert rates.block_rates(made, 7).mean() == pytest.approx(rates.rate(made), rel=1e-6)


def test_warm_up_epochs_are_dropped_and_epochs_joined() -> None:
    three = steps(0, [1.0, 1.0, 0.5, 0.5, 0.5, 0.5], items=3, per_epoch=2)
    kept = three.after_epochs(1)
    assert len(kept) == 4
    assert rates.rate([kept]) == pytest.approx(6.0)
    joined = three.by_epoch()
    assert joined.items.tolist() == [6, 6, 6]
    assert joined.stops_ns.tolist() == [2 * S, 3 * S, 4 * S]
    assert rates.rate([joined]) == pytest.approx(rates.rate([three]))


def test_no_blocks_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="blocks=0"):
        rates.block_rates([steps(0, [1])], 0)


def test_an_interval_wants_steps_enough() -> None:
    few = interval([steps(0, [0.5] * (FEWEST - 1))])
    assert (few.low, few.high) == (None, None)
    assert few.why == "too short: 49 steps, and 50 show how neighbours correlate"
    enough = interval([steps(0, [0.5] * FEWEST, items=3)])
    assert (enough.low, enough.high, enough.why) == (pytest.approx(6), pytest.approx(6), "")
    apart = interval([steps(0, [0.5]), steps(2, [0.5])])
    assert (apart.low, apart.why) == (None, "too short: there is no time in which all replicas are active")


def test_steps_of_the_replica_that_has_least_in_the_common_window_count() -> None:
    many, few = steps(0, [0.1] * 600), steps(0, [1.0] * 60)
    assert interval([many, few]).why == ""
    assert "40 steps" in interval([many, steps(20, [1.0] * 60)]).why


def test_no_interval_of_a_rate_that_falls_all_along() -> None:
    noise = np.random.default_rng(0).normal(0, 0.3, 200)
    found = interval([steps(0, list(np.linspace(1, 2, 200) + noise))])
    assert (found.low, found.high) == (None, None)
    assert "rise or fall all along" in found.why


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("replicas", [1, 3])
def test_intervals_hold_where_steps_correlate(phi: float, replicas: int) -> None:
    """Ten blocks that are taken as independent hold 65 % at 0.9; simulated at length by bench_intervals.py."""
    random = np.random.default_rng(1)
    given = held = 0
    for _ in range(200):
        times = 0.1 * (1 + 0.05 * autoregression(random, phi, replicas, 100))
        found = interval([steps(0, list(each), items=8) for each in times])
        if found.low is not None and found.high is not None:
            given += 1
            held += found.low <= replicas * 80 <= found.high
    assert given >= 180
    assert held >= 0.9 * given  # 200 of them are known to 3 % or so


def autoregression(random: np.random.Generator, phi: float, count: int, length: int) -> np.ndarray:
    """Series [count, length] of unit variance, each value `phi` of the one before plus noise."""
    values = random.standard_normal((count, length)) * np.sqrt(1 - phi * phi)
    values[:, 0] /= np.sqrt(1 - phi * phi)
    for i in range(1, length):
        values[:, i] += phi * values[:, i - 1]
    return values


def test_warm_up_is_where_the_steady_state_begins() -> None:
    noise = np.random.default_rng(0).normal(10, 0.01, 300)
    noise[:60] += 40
    found = warmup(noise)
    assert (found["steady"], found["truncated"]) == (True, 60)
    assert warmup(np.linspace(10, 20, 100))["steady"] is False
