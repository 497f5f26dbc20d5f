# SPDX-License-Identifier: MIT
"""Modules that keep something of their models beside tensors with a place of their own."""

import pytest
import torch

from dnnsuite._step.capture import remembers


class Holder(torch.nn.Module):
    def __init__(self, held):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.register_buffer("mean", torch.zeros(2))
        self.held = held


@pytest.mark.parametrize("held", [None, 3, "relu", (1, 2), {"a": [1.5, None]}, torch.float32, len, int])
def test_plain_values_are_not_of_the_models(held):
    assert not remembers(Holder(held))


@pytest.mark.parametrize(
    "held", [torch.ones(2), [torch.ones(2)], {"cache": (1, torch.ones(2))}, torch.Generator(), iter([1])]
)
def test_tensors_and_objects_may_be(held):
    assert remembers(torch.nn.Sequential(Holder(None), Holder(held)))
