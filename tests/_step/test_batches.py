# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite._step.batches import copy_over, own_copy, static_copy


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
def test_a_static_copy_has_the_layout_and_takes_new_values(make, device):
    first, second = make().to(device), make().to(device)
    own = static_copy(first)
    assert own.stride() == first.stride()
    assert torch.equal(own, first)
    assert first.numel() == 0 or own.data_ptr() != first.data_ptr()
    copy_over(own, second)
    assert torch.equal(own, second)


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
