# SPDX-License-Identifier: MIT
"""Flags for disturbed blocks, on scripted clocks and counters; the real ones only have to make sense."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from dnnsuite import _C, timing
from dnnsuite.errors import Error, InvalidArgument


def scripted(monkeypatch, clocks, counters):
    """`clocks` in GHz, of three chains each, and `counters` (t_ns, switches, steal_s, pressure_s), as they are read."""
    names = ("t_ns", "involuntary_switches", "steal_s", "pressure_s")
    readings = iter([SimpleNamespace(**dict(zip(names, row, strict=True))) for row in counters])
    additions = (slower / ghz for ghz in clocks for slower in (1.0, 3.0, 2.0))
    monkeypatch.setattr(_C, "addition_ns", lambda count: next(additions))
    monkeypatch.setattr(_C, "read_disturbances", lambda: next(readings))


def blocks(watch, count):
    for _ in range(count):
        with watch:
            pass
    return watch.columns()


def test_a_slow_clock_flags_a_block_whenever_it_was(monkeypatch):
    scripted(monkeypatch, [2.0, 2.1, 2.0, 3.0, 3.0, 1.0], [(i * 10**9, 0, 0.0, 0.0) for i in range(6)])
    watch = timing.Contention()
    columns = blocks(watch, 3)
    assert columns["clock_ghz"].tolist() == [2.1, 3.0, 3.0]
    assert columns["throttled"].tolist() == [True, False, False]
    assert watch.notes() == ["1 of 3 blocks were throttled: the clock was down to 2.10 of 3.00 GHz"]


@pytest.mark.parametrize(
    ("after", "contended"),
    [
        ((0, 0.0, 0.0), False),
        ((99, 0.04, 0.04), False),
        ((101, 0.0, 0.0), True),
        ((0, 0.06, 0.0), True),
        ((0, 0.0, 0.06), True),
        ((0, math.nan, math.nan), False),
        ((0, math.nan, 0.06), True),
    ],
)
def test_a_busy_machine_flags_a_block(monkeypatch, after, contended):
    scripted(monkeypatch, [1.0] * 2, [(0, 0, 0.0, 0.0), (10**9, *after)])
    watch = timing.Contention()
    assert blocks(watch, 1)["contended"].tolist() == [contended]
    assert len(watch.notes()) == contended


def test_the_real_machine_makes_sense():
    watch = timing.Contention()
    columns = blocks(watch, 3)
    assert len(watch) == 3
    assert {len(column) for column in columns.values()} == {3}
    assert ((columns["clock_ghz"] > 0.01) & (columns["clock_ghz"] < 20)).all()
    assert (columns["t0_ns"] <= columns["t1_ns"]).all()
    assert (columns["involuntary_switches"] >= 0).all()
    assert columns["throttled"].dtype == columns["contended"].dtype == np.bool_


def test_without_blocks_there_is_nothing_to_say():
    watch = timing.Contention()
    assert (len(watch), watch.notes()) == (0, [])
    assert all(len(column) == 0 for column in watch.columns().values())


def test_blocks_do_not_nest_and_a_block_that_raised_is_kept():
    watch = timing.Contention()
    with watch, pytest.raises(Error, match="does not nest"), watch:
        pass
    with pytest.raises(ZeroDivisionError), watch:
        1 / 0  # noqa: B018
    assert len(watch) == 2
    with pytest.raises(InvalidArgument, match="additions=0"):
        _C.addition_ns(0)
