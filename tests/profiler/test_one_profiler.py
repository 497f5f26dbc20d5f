# SPDX-License-Identifier: MIT
"""One profiler at a time in a process."""

import pytest

from dnnsuite.errors import Unavailable
from dnnsuite.profiler._one_profiler import OneProfiler


def test_the_second_is_refused_until_the_first_is_gone():
    place = OneProfiler()
    place.acquire("train.py:7", lambda: None)
    with pytest.raises(Unavailable, match=r"train\.py:7; close that one first"):
        place.acquire("other.py:1", lambda: None)
    place.release()
    place.acquire("other.py:1", lambda: None)


def test_one_that_is_left_open_is_closed_and_named(capsys):
    place = OneProfiler()
    closed = []
    place.acquire("train.py:7", lambda: closed.append(True))
    place.close_left_open()
    place.release()
    assert closed == [True]
    assert "train.py:7 was left open" in capsys.readouterr().err
    place.close_left_open()
    assert closed == [True]


def test_a_forked_child_may_profile_itself():
    place = OneProfiler()
    place.acquire("train.py:7", lambda: None)
    place.forget_parent()
    place.acquire("child.py:1", lambda: None)
