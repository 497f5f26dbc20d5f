# SPDX-License-Identifier: MIT
import pytest

from dnnsuite.errors import InvalidArgument
from dnnsuite.suites._order import order_of

KEYS = [f"job{i}" for i in range(19)]


def test_fixed_is_the_suites_own_order():
    assert order_of("fixed", KEYS, 3, 1) == KEYS


def test_shuffled_depends_on_seed_and_repeat_alone():
    one = order_of("shuffled", KEYS, 0, 1)
    assert sorted(one) == sorted(KEYS)
    assert one == order_of("shuffled", KEYS, 0, 1)
    assert one not in (KEYS, order_of("shuffled", KEYS, 1, 1), order_of("shuffled", KEYS, 0, 2))


def test_other_orders_are_refused():
    with pytest.raises(InvalidArgument, match="accepted: fixed, shuffled"):
        order_of("random", KEYS, 0, 0)
