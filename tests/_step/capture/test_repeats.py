# SPDX-License-Identifier: MIT
"""Rounds of a loop that Python ends by a value it reads are one in a list of operators."""

import torch

from dnnsuite._step.capture.placed import Repeats
from dnnsuite._step.capture.plan import TensorSlot
from dnnsuite._step.capture.record import StepRecorder


def recorded(function):
    x = torch.ones(3)
    with StepRecorder([x]) as recorder:
        result = function(x)
    recorder.recording.losses = recorder.slot(result).index
    return recorder.recording


def halved(rounds, odd=-1):
    def function(x):
        z, shift = x * 2, x + 1
        for index in range(rounds):
            z = (z - shift).abs() if index == odd else z * shift
            if bool((z < 0).any()):
                break
        return z * 3 + shift

    return function


def described(recording):
    left = Repeats(recording.calls)
    return [call.op for call in left.calls], left.slot(recording.losses)


def test_more_rounds_are_the_same_list():
    few, many = (recorded(halved(rounds)) for rounds in (4, 9))
    assert len(few.calls) < len(many.calls)
    assert described(few)[0] == described(many)[0]


def test_what_follows_a_loop_takes_the_result_of_the_round_that_is_left():
    recording = recorded(halved(6))
    left = Repeats(recording.calls)
    made = {slot for call in left.calls for slot in call.outputs}
    taken = {a.index for call in left.calls for a in call.arguments if type(a) is TensorSlot}
    assert taken <= made | set(recording.inputs)


def test_a_round_of_its_own_stays():
    assert described(recorded(halved(9, odd=5)))[0] != described(recorded(halved(9)))[0]


def test_a_list_without_reads_stays():
    recording = recorded(lambda x: (x * 2 + 1).sin())
    assert [call.op for call in Repeats(recording.calls).calls] == [call.op for call in recording.calls]
