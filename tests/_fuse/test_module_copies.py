# SPDX-License-Identifier: MIT
import collections
import copy
import threading

import pytest
import torch

import dnnsuite
from dnnsuite._fuse.module_copies import copied
from helpers import make_models


class Config:
    def __init__(self):
        self.sizes, self.me = [1, 2], self


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.norm = torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3)
        self.again, self.config, self.table = self.inner, Config(), collections.OrderedDict(a=[self.inner])
        self.register_buffer("scale", torch.ones(1), persistent=False)


class Counted(torch.nn.Linear):
    made = 0

    def __deepcopy__(self, memo):
        Counted.made += 1
        return Counted(3, 3)


def described(module):
    """Names and classes of all modules, and of their attributes, with the values of plain ones."""
    plain = (bool, int, float, str, type(None))
    return [
        (name, type(one), [(key, v if isinstance(v, plain) else type(v)) for key, v in vars(one).items()])
        for name, one in module.named_modules()
    ]


@pytest.mark.parametrize(
    "make",
    [Net, lambda: dnnsuite.fuse(make_models(Net, 2)), lambda: torch.nn.LSTM(2, 3)],
)
def test_copies_are_those_of_deepcopy(make):
    model = make()
    mine, theirs = copied(model, {}), copy.deepcopy(model)
    assert described(mine) == described(theirs)
    assert not {id(p) for p in mine.parameters()} & {id(p) for p in model.parameters()}
    assert all(map(torch.equal, mine.state_dict().values(), model.state_dict().values()))


def test_objects_of_the_memo_are_taken_and_one_object_stays_one():
    model = Net()
    weight = torch.nn.Parameter(torch.zeros(3, 3))
    made = copied(model, {id(model.inner.weight): weight})
    assert made.inner.weight is weight
    assert made.again is made.inner is made.table["a"][0]
    assert made.config.me is made.config is not model.config


def test_tuples_and_sets_are_copied_as_by_deepcopy():
    model = torch.nn.Identity()
    model.pair, model.plain, model.names = (model, [1]), (1, "a"), {"a", "b"}
    made = copied(model, {})
    assert made.pair[0] is made
    assert made.pair[1] == [1]
    assert made.pair[1] is not model.pair[1]
    assert made.plain is model.plain
    assert made.names == model.names
    assert made.names is not model.names


def test_an_array_is_not_copied_by_way_of_pickles_protocol(monkeypatch):
    array = dnnsuite.fuse(make_models(Net, 2))
    memo = {id(tensor): tensor for tensor in (*array.parameters(), *array.buffers())}
    seen = []
    monkeypatch.setattr(
        copy, "deepcopy", lambda value, memo, _raw=copy.deepcopy: seen.append(value) or _raw(value, memo)
    )
    copied(array, memo)
    assert not any(isinstance(value, torch.nn.Module) for value in seen)


def test_a_class_that_copies_itself_does_so():
    before = Counted.made
    assert isinstance(copied(torch.nn.Sequential(Counted(3, 3)), {})[0], Counted)
    assert Counted.made == before + 1


def test_what_cannot_be_copied_raises_as_deepcopy_does():
    model = torch.nn.Identity()
    model.lock = threading.Lock()
    with pytest.raises(TypeError, match="cannot pickle"):
        copied(model, {})
