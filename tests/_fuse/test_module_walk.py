# SPDX-License-Identifier: MIT
import torch

import dnnsuite
from dnnsuite._fuse.single_model import modules_below, tensors_below


class Own(torch.nn.Module):
    """A walk of its own, which leaves out what it holds."""

    def __init__(self):
        super().__init__()
        self.hidden = torch.nn.Linear(2, 2)

    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        yield prefix, self


def tree():
    root = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Sequential(torch.nn.ReLU(), Own()), Own())
    root.again, root.gone = root[0], None
    root[1].deep = torch.nn.ModuleDict({"a": root[0], "b": torch.nn.ModuleList([root[1][0], torch.nn.Tanh()])})
    return root


def test_the_walk_is_torchs():
    root = tree()
    assert modules_below(root) == list(torch.nn.Module.named_modules(root))


def same(found, expected):
    found, expected = list(found), list(expected)
    assert [name for name, _ in found] == [name for name, _ in expected]
    assert all(mine is theirs for (_, mine), (_, theirs) in zip(found, expected, strict=True))


def test_the_tensors_are_torchs():
    root = tree()
    root[1].tied, root[1].bias = root[0].weight, None
    root.register_buffer("nothing", None)
    root[0].register_buffer("kept", torch.ones(1))
    same(tensors_below(root, "_parameters"), root.named_parameters())
    same(tensors_below(root, "_buffers"), root.named_buffers())


def test_an_arrays_walk_is_torchs():
    array = dnnsuite.fuse([torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)) for _ in range(2)])
    same(array.named_parameters(), torch.nn.Module.named_parameters(array))
    same(array.named_buffers(), torch.nn.Module.named_buffers(array))
    same(array.named_parameters("a"), torch.nn.Module.named_parameters(array, "a"))
    assert list(array.parameters(recurse=False)) == list(torch.nn.Module.parameters(array, recurse=False))
    assert list(array.named_modules()) == list(torch.nn.Module.named_modules(array))
    assert list(array.named_modules(prefix="a")) == list(torch.nn.Module.named_modules(array, prefix="a"))


def test_a_module_may_be_replaced_during_the_walk():
    array = dnnsuite.fuse([torch.nn.Sequential(torch.nn.ReLU(), torch.nn.ReLU()) for _ in range(2)])
    for name, module in array.named_modules():
        if isinstance(module, torch.nn.ReLU) and name.endswith("0"):
            array.get_submodule(name.rpartition(".")[0])._modules["1"] = torch.nn.Tanh()
    assert any(isinstance(module, torch.nn.Tanh) for module in array.modules())
