# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite._step.capture import guards
from dnnsuite._step.capture.exchange import Attempt, Exchange, Way
from dnnsuite._step.capture.library import Recordings
from dnnsuite._step.capture.numbers import ChangingNumbers
from dnnsuite._step.capture.plan import make_plan
from dnnsuite._step.capture.record import StepRecorder
from dnnsuite._step.capture.script import Script


def losses(array, x):
    return array(x)


class Shard:
    """A weight, and a step that moves it."""

    def __init__(self, known, value=1.0):
        self.array = torch.nn.Linear(2, 2, bias=False)
        self.array.weight.data.fill_(value)
        self.prepared, self.start, self.length = None, 0, 1
        reach = guards.reach_of(losses, self.array)
        self.exchange = Exchange(self, known, reach, ChangingNumbers(reach, self.array))

    def roles(self):
        return {"weight": self.array.weight.data}

    def facts(self, era, without=()):
        return "code", "layout"

    def layers_set(self):
        return []

    def plans(self):
        return ["plan"]

    def prepare(self, plans):
        self.prepared = plans

    def notes(self):
        return []

    def take_notes(self, notes):
        pass

    def step(self, x):
        self.array.weight.data.add_(x)
        return self.array.weight.data.sum(1)

    def look(self, key="layout of batch"):
        attempt = Attempt()
        self.exchange.look_around(attempt, key, (), "record")
        return attempt

    def record(self, attempt):
        x = torch.ones(2)
        with StepRecorder([x]) as recorder:
            found = self.step(x)
        recorder.recording.losses = recorder.slot(found).index
        return Way(attempt.facts, recording=recorder.recording, replay=Script(make_plan(recorder.recording)))


@pytest.fixture
def known():
    return Recordings()


def test_a_shard_waits_for_the_one_that_records_and_takes_its_recording_over(known):
    first, second = Shard(known), Shard(known, 5.0)
    mine, other = first.look(), second.look()
    assert (mine.stage, other.stage) == ("record", "wait")
    way = first.record(mine)
    first.exchange.keep(way)
    other = second.look()
    assert (other.stage, second.prepared) == ("ways", ["plan"])
    assert torch.equal(other.paths.replay([torch.tensor([1.0, 2.0])]), torch.tensor([13.0, 13.0]))
    assert torch.equal(second.array.weight.data, torch.tensor([[6.0, 7.0], [6.0, 7.0]]))


def test_a_shard_tries_after_one_that_has_given_up(known):
    first, second = Shard(known), Shard(known)
    mine = first.look()
    assert second.look().stage == "wait"
    first.exchange.give_up(mine, alone=False)
    assert second.look().stage == "record"


def test_a_recording_that_is_known_needs_no_comparison():
    first = Shard(Recordings())
    mine = first.record(first.look())
    assert not first.exchange.follows(mine)
    first.exchange.keep(mine)
    other = first.look("another layout")
    assert other.stage == "record"
    way = first.record(other)
    assert first.exchange.follows(way)
    assert way.recording is None


def test_a_shard_alone_records_for_itself():
    alone = Shard(None)
    mine = alone.look()
    assert (mine.stage, mine.facts) == ("record", ())
    assert not alone.exchange.follows(alone.record(mine))


def test_facts_are_read_again_after_a_change(known):
    one = Shard(known)
    before = one.look().facts
    one.facts = lambda era, without=(): ("other code", "layout")
    assert one.look("another layout").facts[0] == before[0]
    one.exchange.forget_facts()
    assert one.look("a third layout").facts[0] != before[0]
