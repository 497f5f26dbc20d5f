# SPDX-License-Identifier: MIT
import pytest
import torch

import dnnsuite
from dnnsuite.errors import InvalidArgument


def test_stack_shares_without_a_copy():
    x = torch.randn(5, 6)
    stacked = dnnsuite.stack(x, B=3)
    assert stacked.shape == (3, 5, 6)
    assert stacked.stride(0) == 0
    assert stacked.data_ptr() == x.data_ptr()
    assert all(torch.equal(part, x) for part in dnnsuite.unstack(stacked))


def test_stack_of_one_per_model():
    parts = [torch.randn(5, 6) for _ in range(3)]
    assert torch.equal(dnnsuite.stack(parts)[1], parts[1])
    with pytest.raises(InvalidArgument, match="B"):
        dnnsuite.stack(parts[0])
    with pytest.raises(InvalidArgument, match="3 tensors for 2"):
        dnnsuite.stack(parts, B=2)
    with pytest.raises(InvalidArgument, match="tensors 0 and 1 differ"):
        dnnsuite.stack([torch.ones(2), torch.ones(3)])


def test_stack_of_mappings():
    x, y = torch.randn(4, 2), torch.arange(4)
    shared = dnnsuite.stack({"x": x, "y": y, "scale": 0.5}, B=3)
    assert (shared["x"].shape, shared["y"].shape, shared["scale"]) == ((3, 4, 2), (3, 4), 0.5)
    assert shared["x"].data_ptr() == x.data_ptr()
    own = dnnsuite.stack([{"x": x}, {"x": x + 1}])
    assert torch.equal(own["x"][1], x + 1)
    with pytest.raises(InvalidArgument, match="batches 0 and 1 have different names"):
        dnnsuite.stack([{"x": x}, {"y": x}])


@pytest.mark.parametrize("batch", [(1, 2), ["input_ids"], [torch.ones(2), {"x": 1}]])
def test_stack_refuses_what_is_no_tensor(batch):
    with pytest.raises(InvalidArgument, match="stack takes tensors or mappings of tensors"):
        dnnsuite.stack(batch)
