# SPDX-License-Identifier: MIT
import collections
import copy
import threading
import weakref

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


class Remade(torch.nn.Module):
    """Saved by what it was made of, as einops' layers are."""

    def __init__(self, width):
        super().__init__()
        self.width, self.inner = width, torch.nn.Linear(width, width)

    def __getstate__(self):
        return {"width": self.width}

    def __setstate__(self, state):
        self.__init__(**state)


class Connected(torch.nn.Module):
    """A model with something that cannot be copied, and the way to do without."""

    def __init__(self):
        super().__init__()
        self.inner, self.numbers = torch.nn.Linear(3, 3), (n for n in [1, 2])

    def __getstate__(self):
        return {name: value for name, value in vars(self).items() if name != "numbers"}

    def __setstate__(self, state):
        vars(self).update(state, numbers=None)


def described(module):
    """Names and classes of all modules, and of their attributes, with the values of plain ones."""
    plain = (bool, int, float, str, type(None))
    return [
        (name, type(one), {key: v if isinstance(v, plain) else type(v) for key, v in vars(one).items()})
        for name, one in module.named_modules()
    ]


@pytest.mark.parametrize("make", [Net, lambda: dnnsuite.fuse(make_models(Net, 2)), lambda: torch.nn.LSTM(2, 3)])
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


def test_modules_are_copied_by_their_attributes_whatever_their_class_says():
    model = torch.nn.Sequential(Remade(3))
    weight = torch.nn.Parameter(torch.zeros(3, 3))
    made = copied(model, {id(model[0].inner.weight): weight})
    assert made[0].inner.weight is weight


def test_what_cannot_be_copied_is_that_of_the_copy_that_the_class_makes():
    model = Connected()
    weight = torch.nn.Parameter(torch.zeros(3, 3))
    made = copied(model, {id(model.inner.weight): weight})
    assert made.numbers is None
    assert made.inner.weight is weight


def test_a_copy_has_locks_of_its_own():
    model = torch.nn.Identity()
    model.lock, model.again, model.condition = threading.Lock(), threading.RLock(), threading.Condition()
    with model.lock, model.again, model.condition:
        made = copied(model, {})
        assert made.lock.acquire(blocking=False)
        assert made.condition.acquire(blocking=False)
        made.condition.notify()
    assert type(made.again) is type(model.again)


def test_references_are_to_the_copy():
    model = Net()
    others = Net()
    model.inner.up, model.inner.weight_of = weakref.ref(model), weakref.ref(model.norm.weight)
    model.inner.call, model.inner.other = weakref.WeakMethod(model.forward), weakref.ref(others)
    vars(model.inner)["proxy"] = weakref.proxy(model)
    model.names = weakref.WeakKeyDictionary({model.inner: "inner", others: "other"})
    model.table["add"] = model.config.sizes.append
    made = copied(model, {})
    assert made.inner.up() is made
    assert made.inner.weight_of() is made.norm.weight
    assert made.inner.call().__self__ is made
    assert made.inner.other() is others
    assert made.inner.proxy.inner is made.inner
    assert dict(made.names) == {made.inner: "inner", others: "other"}
    made.table["add"](3)
    assert (made.config.sizes, model.config.sizes) == ([1, 2, 3], [1, 2])


def test_open_files_and_modules_of_python_stay_the_same(tmp_path):
    model = torch.nn.Identity()
    with (tmp_path / "log").open("w") as file:
        model.held = {"file": file, "module": copy, "operators": torch.ops.aten, "limits": torch.finfo(torch.half)}
        made = copied(model, {})
    assert made.held is not model.held
    assert all(made.held[name] is value for name, value in model.held.items())


def test_what_cannot_be_copied_raises_as_deepcopy_does():
    model = torch.nn.Identity()
    model.numbers = (n for n in [1, 2])
    with pytest.raises(TypeError, match="cannot pickle"):
        copied(model, {})
