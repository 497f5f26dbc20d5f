# SPDX-License-Identifier: MIT
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnnsuite._runs import rates
from dnnsuite._runs.rates import BLOCKS, Steps, interval, warmup
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
        st.tuples(
            st.floats(0, 5), st.lists(st.floats(0.001, 3), min_size=1, max_size=30), st.integers(1, 64)
        ),
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
        parts = rates.items_between(replica, window[0], middle) + rates.items_between(
            replica, middle, window[1]
        )
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


def test_an_interval_wants_two_blocks_at_least() -> None:
    one = Steps(*(np.array([value], np.int64) for value in (0, 10, 1, 0)))
    assert interval([one], 1) == (None, None, None)
    many = Steps(
        np.arange(0, 100, 10, dtype=np.int64),
        np.arange(10, 110, 10, dtype=np.int64),
        np.full(10, 1, np.int64),
        np.zeros(10, np.int64),
    )
    low, high, _ = interval([many], BLOCKS)
    assert low == pytest.approx(1e8)
    assert high == pytest.approx(1e8)


def test_warm_up_is_where_the_steady_state_begins() -> None:
    noise = np.random.default_rng(0).normal(10, 0.01, 300)
    noise[:60] += 40
    found = warmup(noise)
    assert (found["steady"], found["truncated"]) == (True, 60)
    assert warmup(np.linspace(10, 20, 100))["steady"] is False
