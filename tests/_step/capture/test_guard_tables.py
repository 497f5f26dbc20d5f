# SPDX-License-Identifier: MIT
"""Tables of guards: whatever changes is seen, and what cannot be compared is a change."""

import collections
import gc
import types
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnnsuite._C import Guards
from dnnsuite._step.capture.guards import GuardTable


class Holder:
    value = 1


def cell_of(value):
    return (lambda: value).__closure__[0]


def swapped(mapping):
    first, second = mapping
    mapping[first] = mapping.pop(first)
    assert list(mapping) == [second, first]


CHANGES = {
    "a key more": lambda held: held.setdefault("c", 3),
    "a key less": lambda held: held.pop("a"),
    "another value": lambda held: held.__setitem__("a", "x"),
    "an equal value of another type": lambda held: held.__setitem__("a", 1.0),
    "the other order": swapped,
    "nothing left": lambda held: held.clear(),
}


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict, collections.Counter])
@pytest.mark.parametrize("change", CHANGES)
def test_a_dictionary_that_changes(kind, change):
    held, guards = kind(a=1, b=2), Guards()
    guards.container(held, dict(held))
    assert guards.hold()
    CHANGES[change](held)
    known_by_equality = kind is collections.OrderedDict and change in (
        "an equal value of another type",
        "the other order",
    )
    assert guards.hold() is known_by_equality  # of one that keeps an order nobody but its own code tells it


def test_what_is_as_it_was_holds_again():
    held, guards, big = {"a": 1}, Guards(), object()
    held["b"] = big
    guards.container(held)
    del held["b"]
    assert not guards.hold()
    held["b"] = big
    assert guards.hold()


@given(st.lists(st.integers(-3, 3), max_size=6), st.lists(st.integers(-3, 3), max_size=6))
def test_a_list_holds_if_its_elements_are_the_same(before, after):
    held, guards = list(before), Guards()
    guards.container(held)
    held[:] = after
    assert guards.hold() is (before == after)


def test_other_containers_are_compared_with_their_copies():
    held, guards = {1, 2}, Guards()
    with pytest.raises(TypeError, match="needs a copy"):
        guards.container(held)
    guards.container(held, set(held))
    assert guards.hold()
    held.add(3)
    assert not guards.hold()


@pytest.mark.parametrize("space", [{"scale": 1}, types.MappingProxyType({"scale": 1})])
def test_the_object_under_a_name(space):
    guards = Guards()
    for name in ("scale", "missing"):
        guards.item(space, name)
    assert guards.hold()


def test_names_that_come_and_go():
    space, guards = {}, Guards()
    guards.item(space, "scale")
    assert guards.hold()
    space["scale"] = 1
    assert not guards.hold()
    seen, there = Guards(), object()
    space["scale"] = there
    seen.item(space, "scale")
    space["other"] = 2
    assert seen.hold()
    space["scale"] = object()
    assert not seen.hold()
    del space["scale"]
    assert not seen.hold()
    space["scale"] = there
    assert seen.hold()


def test_a_class_attribute(monkeypatch):
    guards = Guards()
    guards.item(vars(Holder), "value")
    monkeypatch.setattr(Holder, "value", 2)
    assert not guards.hold()


def test_a_closures_variable_also_an_empty_one():
    cell, guards = cell_of(1), Guards()
    guards.cell(cell)
    assert guards.hold()
    cell.cell_contents = 1.0
    assert not guards.hold()
    empty, seen = types.CellType(), Guards()
    seen.cell(empty)
    assert seen.hold()
    empty.cell_contents = None
    assert not seen.hold()
    with pytest.raises(TypeError):
        seen.cell(object())


def test_attributes_and_results_are_compared_by_type_and_value():
    holder, guards = types.SimpleNamespace(value=10**20), Guards()
    guards.attribute(holder, "value")
    guards.result(lambda: holder.value + 0)
    holder.value = 10**20 + 0
    assert guards.hold()
    holder.value = 1e20
    assert not guards.hold()
    del holder.value
    assert not guards.hold()
    with pytest.raises(AttributeError):
        guards.attribute(holder, "value")
    assert len(guards) == 2


def test_results_by_identity():
    held, guards = [1], Guards()
    guards.result(lambda: held, True)
    assert guards.hold()
    held = [1]
    assert not guards.hold()


def test_bytes_of_a_buffer():
    numbers, guards = np.arange(3.0), Guards()
    guards.memory(numbers)
    assert guards.hold()
    numbers[1] = np.nan
    assert not guards.hold()
    numbers[1] = 1.0
    assert guards.hold()


def test_what_cannot_be_compared_is_a_change_and_an_interrupt_is_raised():
    answers = iter([1, ValueError("no answer"), KeyboardInterrupt()])

    def read():
        answer = next(answers)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    guards = Guards()
    guards.result(read)
    assert not guards.hold()
    with pytest.raises(KeyboardInterrupt):
        guards.hold()


def test_a_table_in_a_table():
    held, inner, outer = [1], Guards(), Guards()
    inner.container(held)
    outer.table(inner)
    assert outer.hold()
    held.append(2)
    assert not outer.hold()
    for other in (outer, object()):
        with pytest.raises(TypeError):
            outer.table(other)


def test_circles_through_a_table_are_collected():
    holder, guards = Holder(), Guards()
    holder.guards = guards
    guards.container(vars(holder))
    guards.attribute(holder, "guards")
    seen = weakref.ref(holder)
    del holder, guards
    gc.collect()
    assert seen() is None


def test_a_table_is_made_anew_after_a_change_and_seldom_after_many():
    held, made, table = [0], [], GuardTable()

    def fill(guards):
        made.append(guards)
        guards.container(held)

    for step in range(1000):  # a value that changes in every step
        held[0] = step
        assert not table.hold()
        table.keep(table.renewed(fill))
    assert len(made) < 20
    for _ in range(300):
        if not table.hold():
            table.keep(table.renewed(fill))
    assert table.hold()
    held[0] = -1
    assert not table.hold()
