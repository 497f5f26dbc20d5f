# SPDX-License-Identifier: MIT
import torch

from dnnsuite._fuse.rules.once import in_place


def test_in_place():
    assert in_place(torch.Tensor.add_)
    assert in_place(torch.Tensor.__iadd__)
    assert in_place(torch.Tensor.__setitem__)
    assert not in_place(torch.Tensor.add)
    assert not in_place(torch.Tensor.__getitem__)
