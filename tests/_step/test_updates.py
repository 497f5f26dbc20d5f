# SPDX-License-Identifier: MIT
from dnnsuite import nn, optim
from dnnsuite._step.part import Updates


def test_vectors_are_new_only_when_a_value_of_some_optimizer_is():
    layers = [nn.Linear(2, 1, B=2), nn.Linear(3, 1, B=2)]
    optimizers = [optim.SGD(layer.parameters(), lr=[0.1, 0.2]) for layer in layers]
    updates = Updates(optimizers)
    before = updates.vectors
    assert [own["lr"].tolist() for own in before] == [[0.1, 0.2]] * 2
    for _ in range(3):
        assert not updates.changed()
        assert updates.vectors is before
    optimizers[1].param_groups[0]["lr"][0] = 0.5
    assert not updates.changed()
    assert updates.vectors[1]["lr"].tolist() == [0.5, 0.2]
    assert before[1]["lr"].tolist() == [0.1, 0.2]  # of a step that is still under way
    optimizers[0].param_groups[0]["nesterov"] = True
    assert updates.changed()


def test_a_value_that_changes_in_every_step_or_seldom_is_seen_each_time():
    layer = nn.Linear(2, 1, B=2)
    optimizer = optim.SGD(layer.parameters(), lr=0.1)
    updates = Updates([optimizer])
    for step in range(60):
        if step < 20 or step % 7 == 0:
            optimizer.param_groups[0]["lr"] = 0.1 * (step + 1)
        assert not updates.changed()
        assert updates.vectors[0]["lr"].tolist() == optimizer.param_groups[0]["lr"].tolist()


def test_hooks_after_a_step_are_seen_and_those_that_are_taken_away():
    optimizer = optim.SGD(nn.Linear(2, 1, B=2).parameters(), lr=0.1)
    updates = Updates([optimizer])
    assert not updates.changed()
    assert updates.hooks == []
    handle = optimizer.register_step_post_hook(print)
    assert not updates.changed()
    assert updates.hooks == [(optimizer, print)]
    handle.remove()
    assert not updates.changed()
    assert updates.hooks == []
