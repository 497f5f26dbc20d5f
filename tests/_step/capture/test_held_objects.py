# SPDX-License-Identifier: MIT
import collections
import types

import numpy as np
import pytest
import torch

from dnnsuite._step.capture.value_readers import HeldObjects


class Slotted:
    __slots__ = ("held", "weight")

    def __init__(self):
        self.weight, self.held = 1.0, {"a": [1]}


class Below(Slotted):
    __slots__ = ("more",)


CHANGES = [
    (np.zeros(3), lambda value: value.__setitem__(1, 2.0)),
    ({1}, lambda value: value.add(2)),
    (collections.deque([1]), lambda value: value.append(2)),
    (Slotted(), lambda value: setattr(value, "weight", 2.0)),
    (Slotted(), lambda value: value.held["a"].append(2)),
    (Below(), lambda value: setattr(value, "more", 1)),
]


@pytest.mark.parametrize(("value", "change"), CHANGES)
def test_a_change_in_place_is_seen_once(value, change):
    objects = HeldObjects([(value, [None])])
    assert not objects.changed()
    change(value)
    assert objects.changed()
    assert objects.other_objects()
    objects.keep()
    assert not objects.changed()


def test_copies_of_tensors_follow():
    tensor, copy, view = torch.zeros(3), torch.zeros(3), torch.zeros(3)
    objects = HeldObjects([(tensor, [copy, None]), (view, [view[:]])])
    view.fill_(1)
    assert not objects.changed()  # who shares its memory has the change already
    tensor.fill_(2)
    assert objects.changed()
    assert not objects.other_objects()
    objects.carry_over()
    assert torch.equal(copy, tensor)
    assert not objects.changed()


def test_what_a_tuple_holds_is_seen_to_change():
    for held in (([1.0], "x"), (types.SimpleNamespace(k=1), 2)):
        objects = HeldObjects([(held, [None])])
        assert not objects.changed()
        if isinstance(held[0], list):
            held[0][0] = 2.0
        else:
            held[0].k = 2
        assert objects.changed()
    assert not HeldObjects([((1, "x", torch.tanh), [None])]).changed()
