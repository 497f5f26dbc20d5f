# SPDX-License-Identifier: MIT
"""Equal sides on a machine that drifts: called different no more often than an interval of 95 % allows."""

import random

import pytest

from dnnsuite.results import compare
from dnnsuite.results.table import Row, frame_of

ORDERS = {"ABAB": "AB" * 5, "ABBA": "ABBAABBAAB", "random": "BAABABBABA"}


def measured(order: str, drift: float, change: float = 1.0, noise: float = 0.003, seed: int = 0, step: int = 60):
    """Tables of both sides: a run a minute, in this order, each slower than the one before by a share `drift`; from
    minute `step` on by a twelfth, as of a clock that was throttled."""
    draw = random.Random(seed)
    rows = {"A": [], "B": []}
    for minute, side in enumerate(order):
        rate = (
            (100.0 if minute < step else 92.0)
            * (1 - drift) ** minute
            * draw.gauss(1.0, noise)
            * (change if side == "B" else 1.0)
        )
        number = len(rows[side])
        name, started = f"{side}{number}", f"2026-11-22T10:{minute:02d}:00.000Z"
        where = {"run": name, "run_id": name, "plan_id": side, "repeat": number, "hostname": "node"}
        rows[side].append(Row(job="vae", value=rate, unit="images/s", started=started, kind="suite", **where))
    return frame_of(rows["A"]), frame_of(rows["B"])


@pytest.mark.parametrize(("order", "drift"), [*((order, 0.016) for order in ORDERS), ("random", 0.0), ("ABAB", -0.016)])
def test_equal_sides_are_not_called_different(order, drift):
    wrong = 0
    for seed in range(20):
        (found,) = compare(*measured(ORDERS[order], drift, seed=seed))
        assert found.method == "paired"
        wrong += found.verdict in ("faster", "slower")
    assert wrong <= 3


@pytest.mark.parametrize("order", ["ABABAB", "BAABABBABA"])
def test_a_step_of_the_machine_is_no_difference(order):
    wrong, told = 0, set()
    for step in range(1, len(order)):
        (found,) = compare(*measured(order, 0.0, seed=step, step=step))
        wrong += found.verdict in ("faster", "slower")
        told |= set(found.reasons)
    assert wrong <= 1
    assert len(order) > 6 or any("the machine changed its speed" in reason for reason in told)


@pytest.mark.parametrize("order", ORDERS)
def test_a_difference_is_found_beside_a_drift_which_is_told(order):
    (found,) = compare(*measured(ORDERS[order], 0.016, change=0.95))
    assert found.verdict == "slower"
    assert found.ratio == pytest.approx(0.95, abs=0.01)
    assert any("the machine drifted: each run took +1.6 %" in reason for reason in found.reasons)


def test_one_side_after_the_other_says_what_it_cannot_tell():
    (found,) = compare(*measured("AAAAABBBBB", 0.0))
    assert "a drift of the machine cannot be distinguished from a difference" in found.reasons[-1]
    (found,) = compare(*measured("ABBAABBAAB", 0.0))
    assert not any("drift" in reason for reason in found.reasons)
