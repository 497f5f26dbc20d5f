# SPDX-License-Identifier: MIT
import torch

import dnnsuite
from dnnsuite._fuse.new_models import EditedAttributes


class Kept(torch.nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.rate = rate
        self.inner = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.inner(x)


def test_slots_that_change_places_take_their_own_along():
    array = dnnsuite.fuse([Kept(0.1), Kept(0.2), Kept(0.3)])
    edited = EditedAttributes(array._root, [2, 0, 2], {}, None)
    edited.look()
    edited.follow(array._root, "")
    assert [own["rate"] for own in array._root._fused_own] == [0.3, 0.1, 0.3]
