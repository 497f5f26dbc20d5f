# SPDX-License-Identifier: MIT
from dnnsuite import nn, optim
from dnnsuite._step.updates import Updates


def test_vectors_are_new_only_when_a_value_of_some_optimizer_is():
    layers = [nn.Linear(2, 1, B=2), nn.Linear(3, 1, B=2)]
    optimizers = [optim.SGD(layer.parameters(), lr=[0.1, 0.2]) for layer in layers]
    updates = Updates(optimizers)
    before, rules = updates.vectors(), updates.rules
    assert [own["lr"].tolist() for own in before] == [[0.1, 0.2]] * 2
    assert len(rules) == 2
    assert updates.vectors() is before
    optimizers[1].param_groups[0]["lr"][0] = 0.5
    now = updates.vectors()
    assert [own["lr"].tolist() for own in now] == [[0.1, 0.2], [0.5, 0.2]]
    assert before[1]["lr"].tolist() == [0.1, 0.2]  # of a step that is still under way
    assert not updates.changed
    optimizers[0].param_groups[0]["nesterov"] = True
    assert updates.changed
