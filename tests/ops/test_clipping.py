# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite.errors import InvalidArgument
from dnnsuite.ops.optimizer import by_kind, clip_by_norms_, in_memory_order, total_norms


def test_norms_and_factors_of_gradients_of_several_dtypes_and_orders():
    grads = [torch.full((2, 3, 4), 2.0).transpose(1, 2), torch.ones(2, 4, dtype=torch.float64)]
    assert [len(kind) for kind in by_kind(grads)] == [1, 1]
    assert [g.is_contiguous() for g in in_memory_order(grads)] == [True, True]
    norms = total_norms(grads)
    assert norms.tolist() == pytest.approx([52**0.5] * 2)
    clip_by_norms_(grads, torch.tensor([1.0, 100.0]), norms)
    assert total_norms(grads).tolist() == pytest.approx([1.0, 52**0.5])


def test_refuses():
    with pytest.raises(InvalidArgument, match=r"same B in dimension 0, got \[2, 3\]"):
        in_memory_order([torch.ones(2), torch.ones(3)])
    with pytest.raises(InvalidArgument, match="norm_type is 0"):
        total_norms([torch.ones(2)], 0)
