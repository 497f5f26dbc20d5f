# SPDX-License-Identifier: MIT
import types

from dnnsuite._step.capture.value_readers import NameReader, value_of

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


def test_long_containers_count_by_their_length():
    assert value_of(list(range(100))) == 100
