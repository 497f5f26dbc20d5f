# SPDX-License-Identifier: MIT
"""Trials of ways, by seconds that are made up."""

import itertools
import math

import pytest

from dnnsuite._ways import Answer, Trial

pytestmark = pytest.mark.usefixtures("own_answers")


def run(trial, seconds_of, most=100):
    """The ways of the runs until a trial is done. Each way's seconds come in turn, and the last ones stay."""
    ways, left = [], {way: list(seconds) for way, seconds in seconds_of.items()}
    while not trial.done:
        assert len(ways) < most
        ways.append(trial.now)
        mine = left[trial.now]
        trial.add(mine.pop(0) if len(mine) > 1 else mine[0])
    return ways


@pytest.mark.parametrize("best", ["a", "b", "c"])
def test_ways_take_turns_and_the_fastest_is_taken(best):
    trial = Trial("abc", timed=2, turns=2)
    assert "".join(run(trial, {way: [1.0 if way == best else 2.0] for way in "abc"})) == "aabbcc" * 2
    assert trial.now == best


def test_runs_that_warm_up_and_those_that_are_disturbed_decide_nothing():
    trial = Trial("ab", turns=3, untimed=2)
    ways = run(trial, {"a": [0.0, 0.0, 2.0], "b": [9.0, 9.0, 9.0, 1.0, 9.0]})
    assert ("".join(ways), trial.now) == ("aaabbbabab", "b")
    trial = Trial("ab", untimed={"a": 0, "b": 3})
    assert [trial.add(1.0), trial.add(1.0), trial.add(1.0, warm=True), trial.add(1.0)] == [True, False, False, True]


@pytest.mark.parametrize(("b", "turns", "taken"), [(1.1, 6, "a"), (1.2, 2, "a"), (0.92, 6, "a"), (0.5, 2, "b")])
def test_a_small_difference_takes_more_turns_and_must_be_worth_it(b, turns, taken):
    trial = Trial("ab", turns=2, most=6, level=0.9)
    assert "".join(run(trial, {"a": [1.0], "b": [b]})) == "ab" * turns
    assert trial.now == taken


def test_a_way_that_is_far_behind_gets_no_second_turn():
    trial = Trial("abc", turns=3, slow=2.0)
    assert "".join(run(trial, {"a": [5.0], "b": [1.0], "c": [1.5]})) == "abcbcbc"
    trial = Trial("ab", turns=3, slow=2.0)
    assert "".join(run(trial, {"a": [0.0], "b": [0.0]})) == "ababab"  # too short for the clock


def test_times_may_come_late_and_in_any_order():
    trial = Trial("ab", turns=2)
    trial.add(1.0, "b")
    trial.add(1.0, "b")
    trial.add(2.0, "a")
    assert not trial.done
    trial.add(2.0, "a")
    assert (trial.done, trial.now) == (True, "b")
    trial.add(0.1, "a")  # was under way
    assert trial.now == "b"


def test_what_was_found_is_not_tried_again_while_it_counts(own_answers):
    seconds = {1: [0.4, 0.3], 4: [0.1, 0.2]}
    first = Trial([1, 4], "key", turns=2)
    run(first, seconds)
    again = Trial([1, 4], "key", turns=2)
    assert (again.done, again.now, again.least(1), again.least(4)) == (True, 4, 0.3, 0.1)
    assert again.why == "measured on an earlier run: 1 300 ms, 4 100 ms"
    assert first.why == "measured: 1 300 ms, 4 100 ms"
    assert not Trial([1, 4], "another key").done
    assert not Trial([1, 2], "key").done  # 4 is none of them
    known = own_answers.get("key")
    own_answers.put("key", Answer(known.way, known.seconds, at=known.at - 1e7))
    assert len(run(Trial([1, 4], "key", turns=2), {1: [0.1], 4: [0.2]})) == 4
    assert own_answers.get("key").way == 1


def test_a_settled_trial_is_kept_only_if_it_shall_be(own_answers):
    trial = Trial("ab", "key")
    trial.settle("b")
    assert (trial.done, trial.now, trial.why) == (True, "b", "")
    assert own_answers.get("key") is None
    assert math.isnan(trial.least("a"))
    trial.settle("a", keep=True)
    assert Trial("ab", "key").now == "a"


def test_one_way_needs_no_trial(own_answers):
    trial = Trial([3], "key")
    assert (trial.done, trial.now) == (True, 3)
    assert not own_answers.path.exists()


def test_the_fastest_is_taken_though_runs_are_disturbed():
    for a, b, c in itertools.product((1.0, 1.3, 2.0), repeat=3):
        real = dict(zip("abc", (a, b, c), strict=True))
        trial = Trial("abc", turns=2, most=4, untimed=1)
        for number in range(100):
            if trial.done:
                break
            trial.add(real[trial.now] * (3.0 if number % 4 == 0 else 1.0))
        assert real[trial.now] == min(real.values())
