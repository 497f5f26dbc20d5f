# SPDX-License-Identifier: MIT
"""The promise of an instrument, and tables that say how their columns are defined."""

import pandas as pd
import pytest

from dnnsuite import profiler
from dnnsuite.errors import InvalidArgument


class Silent:
    """The least that is an instrument."""

    name = "silent"

    def open(self):
        pass

    def start(self):
        pass

    def step(self, index):
        pass

    def stop(self):
        pass

    def tables(self):
        return {}

    def notes(self):
        return []

    def close(self):
        pass


def test_an_instrument_is_known_by_what_it_can_do():
    assert isinstance(Silent(), profiler.Instrument)
    assert not isinstance(object(), profiler.Instrument)


def test_a_table_carries_the_definition_of_each_column():
    table = profiler.define(pd.DataFrame({"t0_ns": [1], "name": ["x"]}), {"name": "its name", "t0_ns": "start"})
    assert profiler.definitions(table) == {"t0_ns": "start", "name": "its name"}
    assert profiler.definitions(table[table["t0_ns"] > 0]) == {"t0_ns": "start", "name": "its name"}


def test_a_column_without_definition_is_named():
    table = pd.DataFrame({"t0_ns": [1], "load_pct": [2.0]})
    with pytest.raises(InvalidArgument, match=r"\['load_pct'\].*t0_ns"):
        profiler.define(table, {"t0_ns": "start"})
    assert profiler.definitions(table) == {}


def test_names_are_resolved_when_used():
    assert "Instrument" in dir(profiler)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = profiler.nonsense
