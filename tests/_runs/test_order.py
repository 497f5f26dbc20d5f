# SPDX-License-Identifier: MIT
import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnnsuite._runs.order import interleave, ordered
from dnnsuite.errors import InvalidArgument

KEYS = [f"job{i}" for i in range(19)]


def test_fixed_is_the_suites_own_order():
    assert ordered("fixed", KEYS, 3, 1) == KEYS


def test_shuffled_depends_on_seed_and_repeat_alone():
    one = ordered("shuffled", KEYS, 0, 1)
    assert sorted(one) == sorted(KEYS)
    assert one == ordered("shuffled", KEYS, 0, 1)
    assert one not in (KEYS, ordered("shuffled", KEYS, 1, 1), ordered("shuffled", KEYS, 0, 2))


def test_other_orders_are_refused():
    with pytest.raises(InvalidArgument, match="accepted: fixed, shuffled"):
        ordered("random", KEYS, 0, 0)


@given(st.integers(1, 12), st.integers(1, 7), st.integers(0, 2**32))
def test_every_key_once_per_repeat_and_pairs_mirrored(keys: int, repeats: int, seed: int) -> None:
    order = interleave(range(keys), repeats, seed)
    blocks = [[key for repeat, key in order if repeat == r] for r in range(repeats)]
    assert order == [(r, key) for r, block in enumerate(blocks) for key in block]
    assert all(Counter(block) == Counter(range(keys)) for block in blocks)
    for first, second in zip(blocks[::2], blocks[1::2], strict=False):
        assert second == first[::-1]
    assert order == interleave(range(keys), repeats, seed)


def test_modes_are_not_run_one_after_the_other() -> None:
    keys = [(mode, B) for mode in ("serial", "concurrent", "hfta") for B in (1, 2, 4, 8)]
    modes = [key[0] for _, key in interleave(keys, 2, seed=1)]
    changes = sum(a != b for a, b in itertools.pairwise(modes))
    assert changes > 8
