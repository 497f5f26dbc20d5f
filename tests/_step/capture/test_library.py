# SPDX-License-Identifier: MIT
import dataclasses
import gc
import weakref

import pytest
import torch

from dnnsuite._step.capture.library import Place, Places, Read, Recordings, prove
from dnnsuite._step.capture.plan import make_plan
from dnnsuite._step.capture.record import StepRecorder
from dnnsuite._step.capture.script import Script


class Shard:
    """Tensors by role, and a step that moves a row of one of them."""

    def __init__(self, row=0, extra=None):
        self.weight = torch.arange(6.0).reshape(3, 2) + 10 * row
        self.extra, self.start, self.length = extra, row, 1
        self.prepared = None

    def roles(self):
        return {"weight": self.weight}

    def facts(self, era):
        return "code", "layout"

    def layers_set(self):
        return []

    def plans(self):
        return ["plan"]

    def prepare(self, plans):
        self.prepared = plans

    def notes(self):
        return ["note"]

    def take_notes(self, notes):
        self.noted = notes

    def step(self, x):
        self.weight[1].add_(x)
        found = self.weight.sum(1)
        return found if self.extra is None else found * self.extra

    def proven(self, size=2, reads=()):
        x = torch.ones(size)
        with StepRecorder([x]) as recorder:
            losses = self.step(x)
        recorder.recording.losses = recorder.slot(losses).index
        return prove(("code", size), self, Script(make_plan(recorder.recording)), reads)


def test_a_place_is_found_again_in_another_tensor():
    held = torch.arange(12.0).reshape(3, 4)
    place = Places({"a": torch.zeros(3), "b": held[1:]}).find(held[2, ::2])
    assert place.role == "b"
    other = torch.arange(100.0, 112.0).reshape(3, 4)
    assert torch.equal(place.of({"b": other[1:]}), other[2, ::2])
    assert place.of({"b": other[1:]}).untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def test_what_lies_outside_or_has_another_dtype_has_no_place():
    held = torch.arange(12.0).reshape(3, 4)
    search = Places({"b": held[1:2]})
    assert search.find(held) is None
    assert search.find(held[2]) is None
    assert search.find(held[1].view(torch.int32)) is None
    assert search.find(torch.zeros(4)) is None


def test_a_script_serves_another_shard():
    made = Shard().proven()
    other, twin = Shard(row=1), Shard(row=1)
    script, reads = made.serve(other)
    x = torch.tensor([0.5, 0.25])
    assert torch.equal(script([x]), twin.step(x))
    assert torch.equal(other.weight, twin.weight)
    assert (other.prepared, other.noted, reads) == (["plan"], ["note"], [])


def test_a_recording_holds_no_tensor_of_its_shard():
    shard = Shard()
    made = shard.proven()
    watched = weakref.ref(shard.weight)
    del shard
    gc.collect()
    assert watched() is None
    assert made.models == (0, 1)


def test_a_tensor_without_a_role_is_taken_for_any_shards_once_two_had_it():
    shared = torch.tensor([1.0, 2.0, 3.0])
    first, second = Shard(0, shared), Shard(1, shared)
    known = Recordings()
    made = first.proven()
    known.keep(made)
    assert made.serve(second) is None
    again = Shard(0, shared)  # a shard of the same models, after these were divided anew
    for same in (first, again):
        assert known.follows(same.proven())  # tells nothing
        assert made.serve(second) is None
    assert known.follows(second.proven())
    script, _ = made.serve(Shard(2, torch.zeros(3)))
    assert torch.equal(script([torch.zeros(2)]), Shard(2, shared).step(torch.zeros(2)))


def test_a_tensor_that_differs_from_shard_to_shard_serves_none():
    known = Recordings()
    made = Shard(0, torch.ones(3)).proven()
    known.keep(made)
    assert not known.follows(Shard(1, torch.zeros(3)).proven())
    assert made.serve(Shard(1, torch.zeros(3))) is None


def test_another_size_follows_and_another_operator_does_not():
    class Other(Shard):
        def step(self, x):
            return super().step(x).exp()

    known = Recordings()
    known.keep(Shard().proven())
    assert known.follows(Shard().proven(size=1))
    assert not known.follows(Other().proven())


class ModelByModel(Shard):
    """A loop over the models, which are one or several."""

    def step(self, x):
        return torch.stack([own.mul(2) for own in super().step(x).unbind(0)])


class Rounds(Shard):
    """A loop that ends by a value which Python reads."""

    rounds = 3

    def step(self, x):
        found, shift = super().step(x), self.weight.sum(1)
        for _ in range(self.rounds):
            found = (found + shift).abs()
            if bool((found < 0).any()):
                break
        return found * 3


@pytest.mark.parametrize(("kind", "change"), [(ModelByModel, "models"), (Rounds, "rounds")])
def test_more_models_or_rounds_follow(kind, change):
    few, many = kind(), kind()
    if change == "models":
        many.weight = torch.arange(10.0).reshape(5, 2)
    else:
        many.rounds = 9
    known = Recordings()
    known.keep(few.proven())
    assert known.follows(many.proven())
    assert not known.follows(Shard().proven())


def test_a_round_of_its_own_does_not_follow():
    class Odd(Rounds):
        def step(self, x):
            return super().step(x).sub(1)

    known = Recordings()
    known.keep(Rounds().proven())
    assert not known.follows(Odd().proven())


@pytest.mark.parametrize("given", [0, None])
def test_a_value_that_python_has_read_holds_while_it_is_the_same(given):
    flag = torch.tensor([1.0, 0.0])
    read = Read(given, flag, flag.clone(), version=flag._version)
    assert read.holds([flag])
    assert read.holds([flag.clone()])
    flag.fill_(2.0)
    assert not read.holds([flag])


def test_a_value_read_from_a_shard_is_read_from_the_other():
    shard, other = Shard(), Shard(row=1)
    row = shard.weight[2]
    made = shard.proven(reads=[Read(None, row, row.clone(), version=row._version)])
    _, (read,) = made.serve(other)
    assert not read.holds([])  # it has other values there
    other.weight.copy_(shard.weight)
    assert read.holds([])
    unknown = torch.zeros(3)
    assert shard.proven(reads=[Read(None, unknown, unknown)]).serve(other) is None


def test_one_shard_leads_and_the_next_follows_when_it_gives_up():
    known, first, second = Recordings(), Shard(), Shard()
    facts = ("code", 1)
    assert known.lead(facts, first)
    assert known.lead(facts, first)
    assert not known.lead(facts, second)
    known.give_up(facts, first, alone=False)
    assert known.lead(facts, second)
    known.give_up(facts, second, alone=True)
    assert known.lead(facts, first)
    assert known.lead(facts, second)


def test_a_leader_that_is_gone_stands_in_nobodys_way():
    known, first, second = Recordings(), Shard(), Shard()
    assert known.lead(("code",), first)
    del first
    assert known.lead(("code",), second)


def test_recordings_are_found_by_their_facts_and_patterns_by_their_code():
    known, made = Recordings(), Shard().proven()
    known.keep(made)
    assert known.find(("code", 2)) == [made]
    assert known.find(("code", 3)) == []
    assert known.pattern(("code", 3)) is made
    assert known.pattern(("other", 2)) is None
    era = known.era
    known.edited()
    assert known.era is not era


def test_a_place_of_the_whole_is_the_tensor_itself():
    held = torch.nn.Parameter(torch.ones(2, 3))
    assert Place("a", (2, 3), (3, 1), 0, torch.float32).of({"a": held}) is held


class Criterion:
    pass


def test_a_recording_is_found_by_another_runner_whose_code_sees_the_same_objects():
    criterion, other = Criterion(), Criterion()
    made = Shard().proven()
    first, second = Recordings(shared=True), Recordings(shared=True)
    first.keep(made, [criterion])
    assert second.find(made.facts) == []
    assert second.adopt(made.facts, [other]) == []
    assert second.adopt(made.facts, []) == []
    assert Recordings().adopt(made.facts, [criterion]) == []
    assert second.adopt(made.facts, [criterion]) == [made]
    assert second.find(made.facts) == [made]


def test_what_is_one_runners_own_is_not_shared():
    known, second = Recordings(shared=True), Recordings(shared=True)
    factor = 2.0
    own = [(known.era, 1), ((lambda x: x * factor,), 2)]
    for place, facts in enumerate(own):
        made = dataclasses.replace(Shard().proven(), facts=("own", place, facts))
        known.keep(made)
        assert second.adopt(made.facts, []) == []
    with_tensor = dataclasses.replace(Shard(0, torch.ones(3)).proven(), facts=("own", "tensor"))
    known.keep(with_tensor)
    assert second.adopt(with_tensor.facts, []) == []
    gone = dataclasses.replace(Shard().proven(), facts=("own", "gone"))
    known.keep(gone, [Criterion()])
    assert second.adopt(gone.facts, [Criterion()]) == []


def test_state_that_the_first_step_makes_is_waited_for():
    made = Shard().proven()
    late = Shard(row=1)
    late.roles = dict
    assert made.serve(late) is None
