# SPDX-License-Identifier: MIT
"""Attributes and buffers go from the array to its plain models, and back where all have set the same."""

import pytest
import torch

from dnnsuite._fuse.code.plain_parts import Buffers, Part
from dnnsuite.nn.model_tensor import NotFusable


def made():
    module, owners = torch.nn.Module(), [torch.nn.Module() for _ in range(2)]
    module.factor = 1
    for owner in owners:
        owner.factor = 1
    return module, owners, Part(module, owners)


def test_an_attribute_is_followed_and_taken():
    module, owners, part = made()
    module.factor = 3
    assert part.follow()
    assert [owner.factor for owner in owners] == [3, 3]
    del module.factor
    assert part.follow()
    assert not any(hasattr(owner, "factor") for owner in owners)
    for owner in owners:
        owner.count = 5
    part.take()
    assert module.count == 5


def test_what_was_put_back_in_the_array_is_taken_again():
    module, owners, part = made()
    for _ in range(2):  # a trial step, and the step itself from the same state
        module.factor = 1
        assert part.follow()
        for owner in owners:
            owner.factor += 1
        part.take()
        assert module.factor == 2


def test_what_models_do_not_agree_in_stays_theirs():
    module, owners, part = made()
    owners[0].count, owners[1].count = 1, 2
    part.take()
    assert not hasattr(module, "count")


def test_another_child_needs_new_models():
    module, _, part = made()
    module.child = torch.nn.Module()
    assert not part.follow()


def test_a_buffer_is_lent_in_views_and_replaced_together():
    held, owners = {"mean": torch.zeros(2, 3)}, [{}, {}]
    buffers = Buffers(held, "mean", owners)
    buffers.lend()
    owners[1]["mean"] += 1
    buffers.take()
    assert held["mean"].tolist() == [[0.0] * 3, [1.0] * 3]
    for index, owner in enumerate(owners):
        owner["mean"] = torch.full((4,), float(index))
    buffers.take()
    assert held["mean"].tolist() == [[0.0] * 4, [1.0] * 4]
    buffers.lend()
    owners[0]["mean"] = torch.zeros(5)
    with pytest.raises(NotFusable, match="different shapes"):
        buffers.take()
