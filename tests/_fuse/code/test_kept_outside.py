# SPDX-License-Identifier: MIT
"""Values outside of modules that their code can reach: a change is seen, and put back."""

import collections
import contextvars
import itertools
import types
import weakref
from typing import ClassVar

import pytest
import torch

from dnnsuite._fuse.code.kept_state import KeptOutside
from dnnsuite._fuse.code.late_draws import reachable

TOTAL, LOG, QUEUE = 0, [], collections.deque([1])
CONTEXT = contextvars.ContextVar("context")
BY_MODULE = weakref.WeakKeyDictionary()
SETTINGS = types.SimpleNamespace(inner=types.SimpleNamespace(count=0))


class Base(torch.nn.Module):
    shared: ClassVar = {"n": 0}
    made = 0

    def __init__(self):
        super().__init__()
        self.own = []


class Global(Base):
    def forward(self, x):
        global TOTAL
        TOTAL += 1


class Listed(Base):
    def forward(self, x):
        LOG.append(x)


class Queued(Base):
    def forward(self, x):
        QUEUE.rotate()
        QUEUE.append(2)


class OfClass(Base):
    def forward(self, x):
        OfClass.made = self.made + 1
        self.shared["n"] += 1


class InObject(Base):
    def forward(self, x):
        SETTINGS.inner.count += 1


class Weak(Base):
    def forward(self, x):
        BY_MODULE.setdefault(self, []).append(x)


class InContext(Base):
    def forward(self, x):
        CONTEXT.get().append(x)


class Default(Base):
    def forward(self, x, seen=[]):  # noqa: B006
        seen.append(x)


class Hooked(Base):
    def __init__(self):
        super().__init__()
        self.part = torch.nn.Identity()
        self.part.register_forward_hook(lambda *_: LOG.append(1))

    def forward(self, x):
        self.part(x)


class Handed(Base):
    def forward(self, x, leave):
        leave(x)


def state():
    return (
        *(TOTAL, list(LOG), list(QUEUE), OfClass.made, dict(Base.shared), SETTINGS.inner.count),
        *(list(CONTEXT.get()), list(Default.forward.__defaults__[0])),
    )


@pytest.mark.parametrize("kind", [Global, Listed, Queued, OfClass, InObject, Weak, InContext, Default, Hooked, Handed])
def test_a_change_is_seen_and_put_back(kind):
    CONTEXT.set([])
    module, before, target = kind(), state(), []
    arguments = (1, target.append) if kind is Handed else (1,)
    kept = KeptOutside(module, reachable(module), arguments)
    assert not kept.changed()
    module(*arguments)
    assert kept.changed()
    kept.restore()
    assert not kept.changed()
    assert state() == before
    assert target == []


def test_a_closures_variable_is_put_back():
    count = 0

    class Counts(Base):
        def forward(self, x):
            nonlocal count
            count += 1

    module = Counts()
    kept = KeptOutside(module, reachable(module))
    module(1)
    assert kept.changed()
    kept.restore()
    assert count == 0


def test_state_of_the_modules_own_is_not_looked_at():
    class Own(Base):
        def forward(self, x):
            self.own.append(x)

    module = Own()
    kept = KeptOutside(module, reachable(module))
    module(1)
    assert not kept.changed()
    assert module.own == [1]


def test_an_iterator_is_named():
    numbers = itertools.count()

    class Draws(Base):
        def forward(self, x):
            return next(numbers)

    draws, listed = Draws(), Global()
    assert KeptOutside(draws, reachable(draws)).unknown == "count"
    assert KeptOutside(listed, reachable(listed)).unknown == ""
