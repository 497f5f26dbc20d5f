# SPDX-License-Identifier: MIT
"""Stand-ins for floats that Python reads decide as Python does, and a replay as they did."""

import copy
import gc
import math
import operator

import pytest
import torch

from dnnsuite._step.capture.arithmetic import HiddenReads
from dnnsuite._step.capture.looks import ValueChanged
from dnnsuite._step.capture.record import StepRecorder
from dnnsuite._step.capture.script import Scripts
from dnnsuite._step.capture.stand_ins import followed_in_math

VALUES = [0.1, -0.0, 0.0, 1.0, -3.5, 1e-3, 2.0**60, math.inf, -math.inf, math.nan, 5e-324, 0.30000001192092896]


def recorded(function, *values, dtype=torch.float64):
    x = torch.tensor(values, dtype=dtype)
    with StepRecorder([x]) as recorder, HiddenReads(recorder), followed_in_math([]):
        result = function(*(one.item() for one in (x * 1).unbind()))
        out = x + int(result)
    recorder.recording.losses = recorder.slot(out).index
    return recorder.recording, x


def replayed(recording, x):
    """What a replay returns; ValueChanged if Python would go another way."""
    return Scripts()._replay(recording)([x])


DECISIONS = {
    "number": lambda v, w: v < 0.1,
    "mirrored": lambda v, w: v <= 0.1,
    "whole": lambda v, w: v != 1,
    "two": lambda v, w: v <= w,
    "equal": lambda v, w: v == w,
    "truth": lambda v, w: not v,
    "arithmetic": lambda v, w: (v + 0.1) * 3 - w / 7 > 1 - w,
    "absolute": lambda v, w: abs(-v) > max(w, 0.25),
    "least": lambda v, w: min(v, w, 0.5) < 0.3,
    "finite": lambda v, w: math.isfinite(v),
    "infinite": lambda v, w: math.isinf(v) or math.isnan(w),
    "root": lambda v, w: v >= 0 and math.sqrt(v) < math.fabs(w),
    "quotient": lambda v, w: w != 0 and 1.0 / w > v,
}


_ONE_COMPARISON = {"number", "mirrored", "whole", "two", "equal", "truth", "arithmetic", "finite"}


@pytest.mark.parametrize("name", DECISIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_replay_decides_as_python_does(name, dtype):
    decide = DECISIONS[name]
    for v in VALUES:
        recording, _ = recorded(decide, v, 0.3, dtype=dtype)
        assert recording.refusal is None
        for now in VALUES:
            x = torch.tensor([now, 0.3], dtype=dtype)
            taken = [one.item() for one in x]
            same = decide(*taken) == decide(*torch.tensor([v, 0.3], dtype=dtype).tolist())
            try:
                replayed(recording, x)
                followed = True
            except ValueChanged:
                followed = False
            if followed:  # it may be careful, but never wrong
                assert same
            if name in _ONE_COMPARISON:
                assert followed == same


@pytest.mark.parametrize(
    "function",
    [
        lambda v: int(v) > 0,
        lambda v: round(v, 1) > 0,
        lambda v: v**2 > 1,
        lambda v: v // 1 > 0,
        lambda v: v < 2**53 + 1,
        lambda v: v in {1.0},
        lambda v: math.exp(v) > 1,
        lambda v: v.is_integer(),
        lambda v: float(str(v)) > 0,
        lambda v: copy.copy(v) == 1 or torch.tensor(2.0).mul(v) > 1,
        lambda v: operator.index(int(v)) > 0,
    ],
)
def test_what_tensors_cannot_repeat_refuses_the_recording(function):
    expected = function(1.5)
    found = []
    recording, _ = recorded(lambda v: found.append(function(v)) or found[0], 1.5)
    assert recording.refusal.startswith("aten._local_scalar_dense hands a tensor's value to Python")
    assert "test_read_floats.py:" in recording.refusal
    assert found == [expected]


def test_errors_of_python_are_raised():
    with pytest.raises(ZeroDivisionError):
        recorded(lambda v: 1 / v > 0, 0.0)
    with pytest.raises(ValueError, match="math domain"):
        recorded(lambda v: math.sqrt(v) > 0, -1.0)


def test_what_raises_an_error_now_is_no_replay():
    recording, _ = recorded(lambda v: 1 / v > 0, 2.0)
    with pytest.raises(ValueChanged):
        replayed(recording, torch.zeros(1, dtype=torch.float64))


def test_one_that_is_kept_becomes_a_float_and_refuses_the_recording():
    class Holder:
        pass

    kept, held = [], Holder()

    def function(v):
        kept.append(v)
        held.value = {"v": v}
        held.plain = v
        return v > 1

    recording, _ = recorded(function, 1.5)
    gc.collect()
    assert recording.refusal is not None
    assert [type(one) for one in (kept[0], held.value["v"], held.plain)] == [float] * 3


def test_a_list_of_floats_is_followed():
    x = torch.tensor([1.0, 2.0, 3.0])
    with StepRecorder([x]) as recorder, HiddenReads(recorder):
        out = x * (2 if max((x * 2).tolist()) > 5 else 3)
    recorder.recording.losses = recorder.slot(out).index
    assert recorder.recording.refusal is None
    assert torch.equal(replayed(recorder.recording, x + 1), (x + 1) * 2)
    with pytest.raises(ValueChanged):
        replayed(recorder.recording, x - 2)
