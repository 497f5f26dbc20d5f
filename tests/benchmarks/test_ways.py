# SPDX-License-Identifier: MIT
"""Ways that take turns, and replicas in processes: `eval` stands for a function that makes a way."""

import os

import pytest
import ways

from dnnsuite.errors import Error


def replicas(*sources, **environment):
    return ways.concurrent(eval, [(source,) for source in sources], 1, environment)


def test_replicas_train_until_closed():
    both = replicas("lambda steps: None", "lambda steps: 1 / (steps - 3)")
    assert both(2) >= 0.0
    with pytest.raises(Error, match="ZeroDivisionError"):
        both(3)
    ways.close(both)
    assert both._members == []


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("__import__('os')._exit(3)", "killed, for want of memory as a rule"),
        ("int(__import__('os').environ['TOLD_TO_REPLICAS'])", "failed with ValueError: invalid literal .* 'something'"),
    ],
)
def test_a_replica_that_cannot_be_made_says_why(source, message):
    with pytest.raises(Error, match=message):
        replicas(source, TOLD_TO_REPLICAS="something")
    assert "TOLD_TO_REPLICAS" not in os.environ


def test_variables_are_put_back(monkeypatch):
    monkeypatch.setenv("VARIABLE_A", "old")
    with ways._variables({"VARIABLE_A": "new", "VARIABLE_B": "new"}):
        assert (os.environ["VARIABLE_A"], os.environ["VARIABLE_B"]) == ("new", "new")
    assert os.environ["VARIABLE_A"] == "old"
    assert "VARIABLE_B" not in os.environ


def test_a_turn_ends_when_the_device_is_done():
    order = []
    way = ways.repeat(lambda: order.append("step"), lambda: order.append("wait"))
    way(2)
    assert order == ["step", "step", "wait"]


def test_a_way_is_closed_once_it_holds_something():
    closed = []
    ways.close(ways.Closing(lambda steps: None, lambda: closed.append(1)))
    ways.close(ways.repeat(lambda: None))
    assert closed == [1]


def test_every_way_has_each_round():
    calls = {"a": 0, "b": 0}

    def way(name):
        def run(steps):
            calls[name] += steps

        return run

    found = ways.measure({name: way(name) for name in calls}, 2, rounds=3, warmup=4, steps=5)
    assert {name: len(values) for name, values in found.items()} == {"a": 3, "b": 3}
    assert calls == {"a": 4 + 3 * 5, "b": 4 + 3 * 5}
