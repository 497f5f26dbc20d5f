# SPDX-License-Identifier: MIT
import types

import torch

from dnnsuite._step.capture.value_readers import Scope, of_name


def test_a_reader_tells_of_a_change_and_replaces_values():
    config = types.SimpleNamespace(weights={"kl": [0.5, 2]}, beta=1.0, other=3.0)
    scope = Scope()
    scope.names = frozenset(("weights", "beta"))
    reader = of_name(scope, {"config": config}, "the global config", "config")
    before = reader()
    config.other = 4.0
    assert reader() == before
    scope.names |= {"other"}
    assert reader() != before
    for _, _, put in reader.places():
        put(7)
    assert (config.weights, config.beta, config.other) == ({"kl": [7, 7]}, 7, 7)


def test_objects_that_stand_by_identity_and_unknown_ones_are_listed():
    tensor, scope = torch.ones(2), Scope()
    space = {"held": [1, {"b": tensor}, iter([1])]}
    reader = of_name(scope, space, "the global held", "held")
    assert reader.walk().objects[0] is tensor
    assert [(one.where, one.name) for one in reader.unknown()] == [("the global held[2]", "held")]
    space["held"] = 1
    assert reader()[0] == 1
    assert list(reader.unknown()) == []
