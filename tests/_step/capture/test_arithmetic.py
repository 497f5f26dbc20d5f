# SPDX-License-Identifier: MIT
"""Arithmetic of followed numbers gives what Python gives, for other numbers too, or says that it does not."""

import copy
import math

import numpy as np
import pytest

from dnnsuite._step.capture.arithmetic import Trace, is_special, same
from dnnsuite._step.capture.plan import StepRecording
from dnnsuite._step.capture.stand_ins import followed_in_math

FORMULAS = [
    lambda a, b: min(1, b / 100) * a,
    lambda a, b: max(a, b, 3) - 0.9**b + 2**b,
    lambda a, b: (a * 3 // 1) % 7 + divmod(b, 3)[1] - divmod(100, b)[0],
    lambda a, b: math.exp(-b) + math.sqrt(a) + math.cos(math.pi * a),
    lambda a, b: round(a, 2) + math.floor(b / 2) + abs(-b) + math.ceil(a) + math.trunc(a),
    lambda a, b: np.float64(2) * a + np.clip(b, 0, 10) - np.minimum(5.0, a) + np.exp(-a),
    lambda a, b: sum([a, b, 1]) + sorted([b, a])[0],
    lambda a, b: a * 2 if b > 3 and a != b else b,
    lambda a, b: (b << 2) + (b & 6) + (b | 1) + (b >> 1) + (b ^ 3),
    lambda a, b: math.copysign(a, b - 5) + math.fmod(b, 4),
    lambda a, b: copy.deepcopy([a])[0] * copy.copy(b),
]


@pytest.mark.parametrize("formula", FORMULAS)
def test_it_gives_what_python_gives(formula):
    trace = Trace(StepRecording(), [0.37, 8])
    with followed_in_math([]):
        result = formula(*trace.numbers)
    assert same(result.value, formula(0.37, 8))
    for a, b in [(0.37, 8), (0.39, 9), (2.5, 7), (0.01, 200), (7.3, 1), (-1.0, 0)]:
        values = trace.arithmetic.values([a, b])
        if values is not None:
            assert same(values[result.index], formula(a, b))
    assert trace.arithmetic.values([0.37, 8]) is not None
    assert trace.arithmetic.values([0.37, 8.0]) is None


def test_decisions_are_conditions():
    trace = Trace(StepRecording(), [7])
    (number,) = trace.numbers
    assert isinstance(number, int)
    assert not isinstance(number, bool)
    assert [10, 20, 30][number // 3] == 30
    assert "up" if number > 5 else "down"
    assert trace.arithmetic.values([8]) is not None
    assert trace.arithmetic.values([9]) is None
    assert trace.arithmetic.values([5]) is None


def test_nothing_is_written_down_after_the_step():
    trace = Trace(StepRecording(), [0.5])
    (number,) = trace.numbers
    trace.open = False
    assert type(number * 2) is float
    assert number < 1
    assert not trace.arithmetic.lines


def test_numbers_of_which_torch_makes_shorter_work_are_special():
    assert [is_special(v) for v in (0, 1, -1.0, math.inf, math.nan, -0.0)] == [True] * 6
    assert not any(map(is_special, (2, 0.5, 1e-300)))
