# SPDX-License-Identifier: MIT
"""A walk's snapshot is equal to that of an unchanged value and to no other; what it cannot tell, it lists."""

import collections
import itertools
import types
from collections.abc import Iterator
from typing import NamedTuple

import hypothesis
import hypothesis.strategies as st
import pytest

from dnnsuite._state import Same, Walk, slots_of

NAMES = frozenset(("weights", "beta"))


class Slotted:
    __slots__ = ("held", "weight")

    def __init__(self):
        self.weight, self.held = 1.0, {"a": [1]}


class Fields(NamedTuple):
    weights: dict
    scale: float = 1.0


class Below(Slotted):
    __slots__ = ("more",)


def test_names_choose_attributes_and_places_replace_values():
    config = types.SimpleNamespace(weights={"kl": [0.5, 2]}, beta=1.0, other=3.0)
    before = Walk(config, NAMES)
    config.other = 4.0
    assert Walk(config, NAMES).snapshot == before.snapshot
    config.weights["kl"][0] = 0.25
    assert not before.same()
    assert Walk(config, NAMES).snapshot != before.snapshot
    for path, value, put in Walk(config, NAMES, places=True).places:
        found = Walk(config, NAMES).snapshot
        for number in path:
            found = found[number]
        assert found == value
        put(7)
    assert (config.weights, config.beta, config.other) == ({"kl": [7, 7]}, 7, 4.0)


def test_named_tuples_are_compared_by_their_fields():
    value = Fields({"kl": 0.5})
    walk = Walk(value, frozenset(("weights", "scale")))
    assert not walk.unknown
    assert walk.same()
    assert Walk(value._replace(scale=2.0), walk.names).snapshot != walk.snapshot
    value.weights["kl"] = 0.25
    assert not walk.same()


# Of all characters hypothesis makes a table of those of UTF-8 first, which takes it seconds.
TEXTS = st.text(st.characters(max_codepoint=0x7FF), max_size=3)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(TEXTS, inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.sampled_from("abc"), inner).map(lambda held: types.SimpleNamespace(**held))
    ),
    max_leaves=40,
)


def holders(value) -> Iterator[tuple[dict | list, object]]:
    """Every place in a value in which another one can be put."""
    held = vars(value) if isinstance(value, types.SimpleNamespace) else value
    if isinstance(held, (dict, list, tuple)):
        for key, part in list(held.items() if isinstance(held, dict) else enumerate(held)):
            if not isinstance(held, tuple):
                yield held, key
            yield from holders(part)


@hypothesis.given(values, st.randoms(use_true_random=False))
def test_any_change_at_any_depth_is_seen(value, choice):
    walk = Walk(value)
    hash(walk.snapshot)
    assert walk.same()
    assert Walk(value).snapshot == walk.snapshot
    places = list(holders(value))
    if places:
        held, key = choice.choice(places)
        held[key] = "another value"
        assert not walk.same()
        assert Walk(value).snapshot != walk.snapshot


def test_what_is_too_deep_too_many_or_unknown_is_listed_with_its_place():
    node = value = []
    for _ in range(200):
        node.append([])
        node = node[0]
    many, late = [[number] for number in range(30_000)], {"a": types.SimpleNamespace(beta=itertools.count())}
    found = [Walk(one, NAMES, "x").unknown[0] for one in (value, many, late)]
    assert ["deep" in found[0].what, "more than 20000 objects" in found[1].what] == [True, True]
    assert (found[2].where, found[2].name) == ("x['a'].beta", "beta")
    assert str(found[2]) == "an iterator (count) at x['a'].beta"


def test_values_that_hold_themselves_and_each_other_end():
    loop = [1]
    loop.append(loop)
    walk = Walk(loop)
    assert walk.same()
    loop[0] = 2
    assert not walk.same()


def test_an_object_is_the_same_only_as_itself():
    one, other = Slotted(), Slotted()
    assert Same(one) == Same(one)
    assert Same(one) != Same(other)
    assert Same(5) == Same(5)  # of which there is no weak reference
    stands = Same(one)
    del one
    assert stands == stands
    assert slots_of(Below) == ("more", "held", "weight")


@pytest.mark.parametrize(
    "change", [lambda v: setattr(v, "more", 1), lambda v: v.held["a"].append(2), lambda v: delattr(v, "weight")]
)
def test_slots_are_looked_into(change):
    value = Below()
    walk = Walk(value)
    change(value)
    assert not walk.same()
    assert Walk(value).snapshot != walk.snapshot


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
def test_another_order_of_a_dictionary_is_another_value(kind):
    held = kind(a=1, b=2)
    before = Walk(held)
    held["a"] = held.pop("a")
    assert not before.same()
    assert Walk(held).snapshot != before.snapshot
