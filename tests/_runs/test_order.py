# SPDX-License-Identifier: MIT
import pytest

from dnnsuite._runs.words import ordered
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
