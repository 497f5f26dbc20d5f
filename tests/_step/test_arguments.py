# SPDX-License-Identifier: MIT
import collections
import dataclasses
import types

import pytest
import torch

from dnnsuite._step.arguments import opened, own_copy, static_copy, with_parts


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(3, 4, 5),
        lambda: torch.randn(4, 5).expand(3, 4, 5),
        lambda: torch.randn(3, 5, 4).transpose(1, 2),
        lambda: torch.randint(9, (1, 4)).expand(3, 4),
        lambda: torch.zeros(3, 0, 2),
    ],
)
def test_a_static_copy_has_the_layout_and_memory_of_its_own(make, device):
    first = make().to(device)
    own = static_copy(first)
    assert own.stride() == first.stride()
    assert torch.equal(own, first)
    assert first.numel() == 0 or own.data_ptr() != first.data_ptr()


def test_a_sparse_tensor_is_copied_as_it_is():
    sparse = torch.eye(3).to_sparse()
    own = static_copy(sparse)
    assert own.layout == sparse.layout
    assert torch.equal(own.to_dense(), torch.eye(3))


def test_a_batch_keeps_its_structure_and_what_is_one_tensor_stays_one():
    x, y = torch.randn(2, 3), torch.randn(2, 3, requires_grad=True)
    own = own_copy((x, {"x": x, "y": [y, 7]}), leave=lambda tensor: tensor.requires_grad)
    assert own[1]["x"] is own[0]
    assert own[0] is not x
    assert torch.equal(own[0], x)
    assert own[1]["y"][0] is y
    assert own[1]["y"][1] == 7


Pair = collections.namedtuple("Pair", ["x", "scale"])


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: torch.Tensor
    scale: float


@pytest.mark.parametrize(
    "make",
    [
        lambda x: Pair(x, 2.0),
        lambda x: Frozen(x, 2.0),
        lambda x: types.SimpleNamespace(x=x, scale=2.0),
        lambda x: collections.OrderedDict(x=x, scale=2.0),
        lambda x: collections.UserDict(x=x, scale=2.0),
    ],
)
def test_parts_of_any_container_are_replaced_in_one_like_it(make):
    batch = make(torch.ones(2))
    other = with_parts(batch, lambda part: part * 3)
    assert type(other) is type(batch)
    _, (x, scale), _ = opened(other)
    assert torch.equal(x, torch.full((2,), 3.0))
    assert scale == 6.0
    assert torch.equal(opened(batch)[1][0], torch.ones(2))
    assert own_copy(batch) is not batch
    assert opened("text") is None
