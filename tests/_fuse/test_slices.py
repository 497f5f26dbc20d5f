# SPDX-License-Identifier: MIT
import torch

import dnnsuite
from dnnsuite._fuse import narrow, views
from helpers import make_models


def make():
    return torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(3))


def test_a_part_shares_the_storage_and_computes_the_same():
    array = dnnsuite.fuse(make_models(make, 4), seeds=[1, 2, 3, 4])
    same = dnnsuite.fuse(make_models(make, 4), seeds=[1, 2, 3, 4])
    part = array.narrow(1, 2)
    x = torch.randn(4, 5, 3)
    assert torch.equal(part(x[1:3]), same(x)[1:3])
    assert array.get_submodule("1").rng[:, 1].tolist() == [0, 1, 1, 0]
    with torch.no_grad():
        part.get_submodule("0").weight.zero_()
    assert array.get_submodule("0").weight[1:3].abs().sum() == 0
    assert array.get_submodule("0").weight[0].any()
    assert torch.equal(array.get_submodule("2").running_mean[1:3], same.get_submodule("2").running_mean[1:3])


def test_views_are_by_identity():
    array = dnnsuite.fuse(make_models(make, 3))
    held = views(array, 1, 1)
    part = narrow(array, 1, 1, held)
    for name, parameter in array.named_parameters():
        assert part.get_parameter(name) is held[id(parameter)]
        assert held[id(parameter)].data_ptr() == parameter[1].data_ptr()
