# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite.nn import functional


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("keepdim", [False, True])
def test_functional(dtype, keepdim):
    x = (10 * torch.randn(2, 6, 5)).to(dtype)
    for dim in (0, 1, -1):
        got = functional.max(x, dim, keepdim)
        for model in range(2):
            want = torch.max(x[model], dim, keepdim)
            assert torch.equal(got.values[model], want.values)
    assert got.indices.dtype == torch.int64
