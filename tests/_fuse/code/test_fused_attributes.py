# SPDX-License-Identifier: MIT
import torch

import dnnsuite
from dnnsuite._fuse.code.own_values import INTERNAL, bare_class, is_fused
from helpers import make_models


class Doubled(torch.nn.Module):
    def forward(self, x):
        return x * 2


def test_added_attributes_are_listed_and_tell_a_fused_module():
    array = dnnsuite.fuse(make_models(lambda: torch.nn.Sequential(Doubled(), torch.nn.Linear(2, 2)), 2))
    fused, layer = array.get_submodule("0"), array.get_submodule("1")
    array(torch.randn(2, 3, 2))
    assert is_fused(fused)
    assert not is_fused(layer)
    assert set(vars(fused)) - set(vars(Doubled())) <= set(INTERNAL)
    assert bare_class(fused) is Doubled
