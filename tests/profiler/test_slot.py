# SPDX-License-Identifier: MIT
"""One profiler at a time in a process."""

import pytest

from dnnsuite.errors import Unavailable
from dnnsuite.profiler import _slot


def test_the_second_is_refused_until_the_first_is_gone():
    _slot.acquire("train.py:7", lambda: None)
    try:
        with pytest.raises(Unavailable, match=r"train\.py:7; close that one first"):
            _slot.acquire("other.py:1", lambda: None)
    finally:
        _slot.release()
    _slot.acquire("other.py:1", lambda: None)
    _slot.release()


def test_what_is_left_open_is_closed_at_exit_and_named(capsys):
    closed = []
    _slot.acquire("train.py:7", lambda: closed.append(True))
    _slot._at_exit()
    _slot.release()
    assert closed == [True]
    assert "train.py:7 was left open" in capsys.readouterr().err
    _slot._at_exit()
    assert closed == [True]
