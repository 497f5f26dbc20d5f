# SPDX-License-Identifier: MIT
import types

import torch

from dnnsuite._step.capture.value_readers import NameReader, objects_in, value_of

NAMES = frozenset(("weights", "beta"))


def test_values_deep_in_objects_count_and_can_be_replaced():
    config = types.SimpleNamespace(weights={"kl": [0.5, 2]}, beta=1.0, other=3.0)
    reader = NameReader({"config": config}, "config", NAMES)
    before = reader()
    config.other = 4.0
    assert reader() == before
    config.weights["kl"][0] = 0.25
    assert reader() != before
    for path, value, put in reader.places():
        found = reader()
        for number in path:
            found = found[number]
        assert found == value
        put(7)
    assert (config.weights, config.beta, config.other) == ({"kl": [7, 7]}, 7, 4.0)


def test_very_long_containers_count_by_their_length():
    assert value_of(list(range(10_000))) == 10_000


def test_long_containers_are_compared_by_value():
    numbers, names, table = [1.0] * 40, {str(i) for i in range(40)}, {i: [i] for i in range(40)}
    for held, change in (
        (numbers, lambda: numbers.__setitem__(30, 2.0)),
        (names, lambda: names.symmetric_difference_update({"1", "x"})),
        (table, lambda: table.__setitem__(3, [3])),
    ):
        before = value_of(held)
        assert value_of(held) == before
        change()
        assert value_of(held) != before


def test_containers_in_containers_are_looked_into():
    config = {"model": {"loss": {"weights": {"first": 1.0}}}}
    before = value_of(config)
    config["model"]["loss"]["weights"]["first"] = 2.0
    assert value_of(config) != before


def test_objects_that_stand_by_identity_are_listed():
    tensor, inner = torch.ones(2), types.SimpleNamespace(k=1)
    outer = types.SimpleNamespace(inner=inner, other=tensor)
    assert list(objects_in([1, "a", {"b": tensor}], frozenset())) == [tensor]
    found = list(objects_in(outer, frozenset(("inner",))))
    assert [id(one) for one in found] == [id(outer), id(inner)]
    assert [id(one) for one in objects_in([tensor] * 20, frozenset())] == [id(tensor)] * 20
