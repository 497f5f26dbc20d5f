# SPDX-License-Identifier: MIT
"""Recordings of the ways through a step: which is tried, and when there is no use in more."""

from dataclasses import dataclass

import torch

from dnnsuite._step.capture import looks as paths
from dnnsuite._step.capture.looks import Looks, Paths, ValueChanged


@dataclass
class Counted:
    """Path of a loop of `rounds` rounds; its replay fails as one of a step of another number would."""

    rounds: int
    stage: str = "replay"
    step: None = None
    tried: int = 0

    @property
    def looks(self):
        return Looks((0,) * (self.rounds - 1) + (1,))

    @property
    def replay(self):
        return self

    def takes(self, numbers):
        return not numbers

    def begins(self, inputs):
        return True

    def fed(self):
        return []

    def __call__(self, inputs):
        self.tried += 1
        wanted = int(inputs[0])
        if wanted != self.rounds:
            read = min(wanted, self.rounds) - 1
            raise ValueChanged(f"Python has read another value at model.py:3 in forward (read {read})")
        return inputs[0]


def made(*rounds):
    found, each = Paths(), [Counted(one) for one in rounds]
    for one in reversed(each):
        found.add(one)
    return found, each


def test_the_last_right_one_is_tried_first():
    found, (three, five, _) = made(3, 5, 7)
    assert found.replay([torch.tensor(5)]) == 5
    assert (three.tried, five.tried) == (1, 1)
    assert found.replay([torch.tensor(5)]) == 5
    assert (three.tried, five.tried) == (1, 2)


def test_a_value_that_differs_rules_others_out():
    found, (seven, _, five, three) = made(7, 6, 5, 3)
    assert found.replay([torch.tensor(4)]) is None  # the third round goes on, the fourth ends
    assert seven.tried == 1
    assert five.tried == three.tried == 0


def test_the_longest_one_tells_which_is_right():
    found, (three, five, *others) = made(3, 5, 7, 9, 11, 20)
    assert found.replay([torch.tensor(9)]) == 9
    assert [one.tried for one in (three, five, *others)] == [1, 1, 0, 1, 0, 1]


def test_pending_ones_are_left_for_a_comparison():
    found, (three, five) = made(3, 5)
    five.stage = "compare"
    assert found.replay([torch.tensor(5)]) is None
    assert found.compare([torch.tensor(5)], lambda path: torch.tensor(path.rounds)) == 5
    assert found.compare([torch.tensor(3)], lambda path: path([torch.tensor(3)])) is None
    assert three.tried == 1


def test_the_one_not_used_for_longest_makes_room(monkeypatch):
    monkeypatch.setattr(paths, "MAX_PATHS", 2)
    found, _ = made(3, 5)
    found.replay([torch.tensor(5)])
    found.add(Counted(9))
    assert found.has(Looks((0,) * 4 + (1,)))
    assert not found.has(Looks((0, 0, 1)))


def test_steps_that_none_is_right_for_are_counted():
    found, _ = made(3)
    found.replay([torch.tensor(4)])
    for _ in range(paths.MAX_PATHS):
        assert found.compare([torch.tensor(4)], None) is None
    assert found.refusal is None
    found.compare([torch.tensor(4)], None)
    assert found.refusal.endswith("another way at model.py:3 in forward")
    found.replay([torch.tensor(3)])
    assert found.refusal is None
