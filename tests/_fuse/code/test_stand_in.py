# SPDX-License-Identifier: MIT
import copy
import pickle
import types

import pytest

from dnnsuite._fuse.code.stand_in import StandIn, attributes_alone, differing, follow, is_its_attributes, stand_in


class Config:
    def __init__(self, **held):
        vars(self).update(held)

    def both(self):
        return self.a + self.b


def test_it_has_what_objects_have_in_common():
    made = stand_in([Config(a=1, b=b, inner=Config(c=b, d=3)) for b in (1, 2)])
    assert isinstance(made, Config)
    assert (made.a, made.inner.d) == (1, 3)
    assert sorted(differing(made)) == ["b", "c"]
    for read in (lambda: made.b, made.both, lambda: made.inner.c, lambda: 1 + vars(made)["b"]):
        with pytest.raises(AttributeError, match="differs from model to model"):
            read()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_copies(copied):
    made = copied(stand_in([Config(a=1, b=b) for b in (1, 2)]))
    assert isinstance(made, StandIn)
    assert (made.a, list(differing(made))) == (1, ["b"])


def test_what_is_set_in_it_is_set_in_all():
    values = [{"a": 1, "b": b, "gone": 0} for b in (1, 2)]
    made = stand_in(values)
    made["a"] = 5
    del made["gone"]
    for value in values:
        follow(value, made)
    assert values == [{"a": 5, "b": 1}, {"a": 5, "b": 2}]


@pytest.mark.parametrize(
    "values", [[1.0, 2.0], [[1], [2]], [Config(), {}], [type("Slots", (), {"__slots__": "a"})()] * 2]
)
def test_others_have_none(values):
    assert stand_in(values) is None


def test_classes_whose_objects_are_their_attributes():
    assert all(map(is_its_attributes, (Config, dict, types.SimpleNamespace)))
    assert not any(map(is_its_attributes, (object, list, float, types.ModuleType, type)))
    assert attributes_alone(Config(a=1)) == ({"a": 1}, {})
    assert attributes_alone([1]) is None
