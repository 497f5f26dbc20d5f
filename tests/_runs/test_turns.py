# SPDX-License-Identifier: MIT
import itertools
import math
import random
from collections.abc import Callable

import numpy as np
import pytest

from dnnsuite._runs.turns import FEWEST_PAIRS, Block, Goal, Rounds, known, take_turns
from dnnsuite.errors import InvalidArgument


def machine(seed: int) -> Callable[[], float]:
    """The speed of a machine whose neighbours come and go: up to thirty times slower, for some rounds each time."""
    draw, state = random.Random(seed), [1.0, 0]

    def speed() -> float:
        if state[1] <= 0:
            state[:] = [draw.choice([1.0, 0.5, 0.1, 0.03]), draw.randint(5, 40)]
        state[1] -= 1
        return state[0] * math.exp(draw.gauss(0, 0.03))

    return speed


def test_neighbours_that_slow_everything_leave_the_ratio() -> None:
    def ways(seed: int) -> dict[str, Callable[[int], Block]]:
        speed, per_round = machine(seed), dict[int, float]()
        draw = random.Random(seed)

        def way(rate: float) -> Callable[[int], Block]:
            return lambda i: Block(rate * per_round.setdefault(i, speed()) * math.exp(draw.gauss(0, 0.03)))

        return {"serial": way(10.0), "array": way(28.0)}

    hits = 0
    for seed in range(40):
        found = take_turns(ways(seed), Goal(floor=0.0), "serial", seed=seed)
        ratio = found.ratio("array")
        assert found.goal.verdict(ratio) == "ok"
        hits += ratio.low <= 2.8 <= ratio.high
    assert hits >= 35


def test_disturbed_blocks_do_not_count_whatever_their_rate_is() -> None:
    ways = {
        "serial": lambda i: Block(10.0 if i % 2 else 0.1, "" if i % 2 else "others used 0.9 of 2 cores"),
        "array": lambda i: Block(20.0),
    }
    found = take_turns(ways, Goal(rounds=20), "serial")
    ratio = found.ratio("array")
    assert ratio.value == pytest.approx(2.0)
    assert (ratio.pairs, ratio.rounds) == (10, 20)
    assert ratio.disturbed == "others used 0.9 of 2 cores, in 10 of 20 rounds"


def test_what_is_always_disturbed_is_inconclusive() -> None:
    ways = {name: lambda i: Block(1.0, "others") for name in ("serial", "array")}
    found = take_turns(ways, Goal(rounds=30), "serial")
    ratio = found.ratio("array")
    assert math.isnan(ratio.value)
    assert found.goal.verdict(ratio) == "inconclusive"
    assert ratio.reason() == "the machine was busy: others, in 30 of 30 rounds"


def test_a_block_that_others_disturbed_is_not_why_a_quiet_machine_tells_little() -> None:
    ways = {"serial": lambda i: Block(1.0, "others" * (i == 3)), "array": lambda i: Block(1.0 + i % 5)}
    ratio = take_turns(ways, Goal(rounds=20), "serial").ratio("array")
    assert (ratio.pairs, ratio.rounds, ratio.disturbed) == (19, 20, "others, in 1 of 20 rounds")
    assert ratio.reason().startswith("its interval is ±")


def test_neighbouring_blocks_are_judged_together_and_none_is_left_unjudged() -> None:
    slow = {3, 4, 19}  # rounds
    seen: list[int] = []

    def way(rate: float) -> Callable[[int], Block]:
        def block(i: int) -> Block:
            seen.append(i)
            return Block(rate / 10 if i in slow else rate)

        return block

    def watch() -> Callable[[], str]:
        begun = len(seen)
        return lambda: "others" if slow & set(seen[begun:]) else ""

    found = take_turns({"serial": way(1.0), "array": way(3.0)}, Goal(rounds=20), "serial", watch=watch)
    for blocks in found.blocks.values():
        assert all(blocks[i].disturbed == "others" for i in slow)
        assert all(block.rate >= 1.0 for block in blocks if not block.disturbed)


def test_each_round_has_the_baseline_and_what_is_not_known_in_a_new_order() -> None:
    turns: list[tuple[int, str]] = []
    draw = random.Random(0)

    def way(name: str, noise: float) -> Callable[[int], Block]:
        def block(i: int) -> Block:
            turns.append((i, name))
            return Block(math.exp(draw.gauss(0, noise)))

        return block

    ways = {"serial": way("serial", 0.0), "steady": way("steady", 0.001), "noisy": way("noisy", 0.15)}
    found = take_turns(ways, Goal(), "serial", seed=3)
    by_round = {i: [name for _, name in each] for i, each in itertools.groupby(turns, key=lambda turn: turn[0])}
    assert all("serial" in names for names in by_round.values())
    assert sum(block is not None for block in found.blocks["steady"]) == FEWEST_PAIRS
    assert len({tuple(names) for names in by_round.values() if len(names) == 3}) > 2
    assert len(by_round) > 2 * FEWEST_PAIRS
    assert {len(blocks) for blocks in found.blocks.values()} == {len(by_round)}


def test_the_budget_ends_what_is_never_known(monkeypatch: pytest.MonkeyPatch) -> None:
    now = itertools.count()
    monkeypatch.setattr("time.monotonic", lambda: float(next(now)))
    ways = {"serial": lambda i: Block(1.0), "array": lambda i: Block(1.0 + 50.0 * (i % 2))}
    found = take_turns(ways, Goal(budget_s=40.0), "serial")
    assert len(found.blocks["array"]) <= 41
    assert found.goal.verdict(found.ratio("array")) == "inconclusive"


def test_a_way_that_fails_has_no_further_turns_and_a_baseline_ends_all() -> None:
    ways = {
        "serial": lambda i: Block(1.0),
        "bad": lambda i: Block(1.0) if i < 3 else None,
        "good": lambda i: Block(3.0),
    }
    found = take_turns(ways, Goal(rounds=12), "serial")
    assert [sum(map(bool, found.blocks[name])) for name in ("serial", "bad", "good")] == [12, 3, 12]
    ends = take_turns({**ways, "serial": lambda i: Block(1.0) if i < 5 else None}, Goal(rounds=12), "serial")
    assert sum(map(bool, ends.blocks["serial"])) == 5
    assert max(len(blocks) for blocks in ends.blocks.values()) == 6


def test_ways_that_join_later_are_compared_within_their_rounds() -> None:
    slowed = {i: 1.0 if i < 5 else 0.2 for i in range(40)}
    serial = {"serial": lambda i: Block(slowed[i])}
    found = take_turns(serial, Goal(rounds=5), "serial")
    take_turns({**serial, "array": lambda i: Block(3 * slowed[i])}, Goal(rounds=20), "serial", into=found)
    assert found.ratio("array").value == pytest.approx(3.0)
    assert found.ratio("array").pairs == 15


def test_without_a_baseline_each_rate_is_looked_at() -> None:
    found = take_turns({"a": lambda i: Block(5.0)}, Goal())
    assert found.ratio("a").value == pytest.approx(5.0)


def test_the_interval_knows_that_neighbouring_values_are_correlated() -> None:
    draw, held, naive = np.random.default_rng(0), 0, 0
    for _ in range(200):
        noise, x = draw.standard_normal(90), np.zeros(90)
        for i in range(1, 90):
            x[i] = 0.6 * x[i - 1] + noise[i]
        x = 0.05 * x[50:]
        found = known(np.exp(x))
        held += found.low <= 1 <= found.high
        naive += abs(x.mean()) <= 2.02 * x.std(ddof=1) / math.sqrt(len(x))
    assert held >= 178  # 95 % at best
    assert naive < 150  # what taking them as independent would have given


def test_a_few_outliers_that_nobody_saw_hardly_move_it() -> None:
    values = [1.0 + 0.001 * i for i in range(-10, 10)]
    values[3], values[12] = 0.05, 0.02
    assert known(values).value == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("count", [0, 1, FEWEST_PAIRS - 1])
def test_too_few_have_no_interval(count: int) -> None:
    found = known([1.0] * count)
    assert math.isnan(found.low)
    assert found.why


def test_a_floor_is_added_and_bad_goals_are_refused() -> None:
    assert known([2.0] * 10, floor=0.1).high == pytest.approx(2 * math.exp(0.1))
    for goal in ({"half_width": 0.0}, {"half_width": 1.5}, {"budget_s": 0.0}):
        with pytest.raises(InvalidArgument):
            Goal(**goal)
    with pytest.raises(InvalidArgument):
        take_turns({"a": lambda i: Block(1.0)}, Goal(), "b")
    assert Rounds(None, Goal()).blocks == {}
