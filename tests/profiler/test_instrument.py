# SPDX-License-Identifier: MIT
"""The promise of an instrument, and tables that say how their columns are defined."""

import pandas as pd
import pytest

from dnnsuite import profiler
from dnnsuite.errors import InvalidArgument, Unavailable
from dnnsuite.profiler import instrument
from dnnsuite.profiler.instrument import Instrument


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


class Double:
    """Stands for an instrument; `missing` makes its open() fail."""

    def __init__(self, name, missing=False):
        self.name, self.missing, self.is_open = name, missing, False

    def open(self):
        if self.missing:
            raise Unavailable("no device", "/dev", "plug one in")
        self.is_open = True

    def start(self): ...
    def step(self, index): ...
    def stop(self): ...
    def tables(self):
        return {}

    def notes(self):
        return []

    def close(self):
        self.is_open = False


def makers(*doubles):
    return [(double.name, lambda double=double: double) for double in doubles]


def test_every_word_names_instruments_that_can_be_made():
    for words in instrument.METRICS.values():
        assert set(words) <= set(instrument.NAMES)
    for name in instrument.NAMES:
        made = instrument.make(name)
        assert isinstance(made, Instrument)
        assert made.name == name


@pytest.mark.parametrize("metrics", ["timeline", ["timeline"], "timeline|timeline", "timeline,timeline"])
def test_words_are_joined_in_any_way(metrics):
    found, asked = instrument.choose(metrics)
    assert [name for name, _ in found] == ["phases", "window", "ops"]
    assert asked == set()


def test_all_is_everything_once():
    both = [[name for name, _ in instrument.choose("all", (), device)[0]] for device in ("cpu", "cuda")]
    assert {*both[0], *both[1]} == {name for each in instrument.METRICS.values() for name in each}
    assert all(len(names) == len(set(names)) for names in both)
    assert "activity" not in both[0]
    assert "ops" not in both[1]


def test_an_instrument_that_was_made_already_stands_for_its_name():
    mine = Double("phases")
    found, asked = instrument.choose("timeline", [mine])
    assert [make() for name, make in found if name == "phases"] == [mine]
    assert asked == {"phases"}


@pytest.mark.parametrize(
    ("metrics", "instruments", "words"),
    [("timelime", (), "did you mean 'timeline'"), ("", (), "metrics: no ''"), ("timeline", ["phase"], "'phases'")],
)
def test_an_unknown_word_is_refused_with_the_known(metrics, instruments, words):
    with pytest.raises(InvalidArgument, match=words):
        instrument.choose(metrics, instruments)


def test_what_is_not_to_be_had_is_told():
    good, bad = Double("good"), Double("bad", missing=True)
    opened, absent = instrument.open_all(makers(good, bad), set())
    assert opened == [good]
    assert good.is_open
    assert absent == [instrument.Absent("bad", "no device (looked in /dev)", "plug one in")]


def test_one_that_was_asked_for_by_name_is_an_error_and_the_others_are_closed():
    good, bad = Double("good"), Double("bad", missing=True)
    with pytest.raises(Unavailable, match="plug one in"):
        instrument.open_all(makers(good, bad), {"bad"})
    assert not good.is_open


@pytest.mark.parametrize(
    ("metrics", "opened", "refused"),
    [("cores", "counters", "activity"), ("cores|memory", "counters", "activity"), ("all", "activity", "counters")],
)
def test_counters_and_traces_have_runs_of_their_own(metrics, opened, refused):
    found = dict(instrument.choose(metrics, (), "cuda")[0])
    assert found[opened]().name == opened
    with pytest.raises(Unavailable, match="not measured in one run"):
        found[refused]()
    assert len(found) == len(instrument.choose(metrics, (), "cuda")[0])


def test_counters_are_of_all_words_together_and_say_why_they_are_not_there():
    found, asked = instrument.choose("cores,memory", (), "cpu")
    made = dict(found)["counters"]()
    assert set(made._metrics) == {"cores", "memory"}
    assert "counters" not in dict(instrument.choose("all", (), "cpu")[0])
    assert asked == set()
